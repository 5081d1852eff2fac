"""Numbers of a model's attributes that know where they are, and attributes as Python text."""

import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from torch import nn

from fusegen.models.lift.constructor_numbers import Numbers, carried
from fusegen.models.lift.fx_graph import LAYER
from fusegen.models.lift.labels import CARRIERS, is_record, label_of, labelled, plain, with_fields
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import layer_of

PATHS = (nn.Sequential, nn.ModuleList, nn.ParameterList)
ACTIVATIONS = nn.modules.activation.__name__
SIZED = tuple(each.__name__ for each in (nn.modules.linear, nn.modules.conv, nn.modules.sparse))
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
BATCH_NORM = nn.modules.batchnorm._BatchNorm
OF_NORMS = ("eps", "num_groups", "p")  # of norms and of dropouts
FIRST = "[0]"  # behind the text of a tuple, that of its first item


def attribute(model: nn.Module, path: str) -> str:
    """Return an attribute of a model as forward reads it: ``self.layers[0].weight``."""
    text = "self"
    at: Any = model
    for word in path.split("."):
        if isinstance(at, PATHS) and word.isdigit():
            text += f"[{word}]"
        elif isinstance(at, nn.ModuleDict | nn.ParameterDict):
            text += f'["{word}"]'
        elif word.isidentifier():
            text += f".{word}"
        else:
            text = f'getattr({text}, "{word}")'
        at = getattr(at, word, None)
    return text


def label_numbers(model: nn.Module) -> dict[str, Any]:
    """Give the numbers of a model's attributes labels: the text by which forward reads each.

    The attributes of the model's own modules, those of activations and other layers that the constructor
    decides, and the eps and the groups of norms.

    Returns:
        The numbers by their labels.
    """
    found: Numbers = {}
    for path, module in model.named_modules():
        for name in _names(module):
            value = vars(module)[name]
            text = attribute(model, f"{path}.{name}" if path else name)
            vars(module)[name] = _labelled(text, value, found)
    return found


def _names(module: nn.Module) -> Iterator[str]:
    if type(module).__module__ == ACTIVATIONS:
        usual = _defaults(type(module))
        for name, value in vars(module).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and name in usual and (label_of(value) or value != usual[name]):
                yield name
    elif isinstance(module, (*NORMS, nn.Dropout)):
        yield from (name for name in OF_NORMS if isinstance(vars(module).get(name), int | float))
    elif type(module).__module__ in SIZED:
        yield from (name for name in vars(module) if _has_sizes(module, name))
    elif type(module).__module__.startswith("torch.nn"):
        yield from (name for name, value in vars(module).items() if _with_labels(value))
    else:
        yield from (name for name in vars(module) if not name.startswith("_") and name != "training")


def _has_sizes(module: nn.Module, name: str) -> bool:
    """Return True for numbers of a layer: ``self.fc.out_features``, ``self.conv.stride[0]``."""
    value = vars(module)[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not name.startswith("_") and (is_number or bool(_with_labels(value)))


def fixed(region: Region) -> dict[str, Any]:
    """Return the numbers of a model that a region's spec has as they are: of dimensions and windows."""
    found: dict[str, Any] = {}
    for node in region.nodes:
        layer = layer_of(node)
        if isinstance(layer, BATCH_NORM):
            continue  # its kernel reads the layer
        given = vars(layer).values() if layer is not None else (*node.args, *node.kwargs.values())
        every = [item for each in given for item in _with_labels(each)]
        found |= {str(label_of(each)): plain(each) for each in every if not isinstance(each, str)}
    texts = (label for label in found if label.startswith("self") and label not in region.labels)
    return {label: found[label] for label in texts}


def truths(region: Region) -> dict[str, Any]:
    """Return the truths of layers that a region's spec has as they are, by the texts of attributes."""
    found: dict[str, Any] = {}
    for path, layer in _decided(region):
        given = {name: value for name, value in vars(layer).items() if isinstance(value, bool)}
        found |= {f"{path}.{name}": given[name] for name in given if name in _defaults(type(layer))}
    return found


def ranks(region: Region, numbers: Iterable[str], kinds: Collection[type]) -> dict[str, int]:
    """Return how many dimensions a region reduces where the constructor may decide it, by texts.

    Args:
        region: it.
        numbers: the texts of those of the model's attributes.
        kinds: the types of the constructor's arguments. In torch.nn the items of a tuple have no labels.
    """
    may_be = not {tuple, list}.isdisjoint(kinds)
    norms = ((path, getattr(layer, "normalized_shape", ())) for path, layer in _decided(region))
    read = ((path, sizes) for path, sizes in norms if sizes and (may_be or _with_labels(sizes)))
    found = {f"len({path}.normalized_shape)": len(sizes) for path, sizes in read}
    if region.is_of_rows:
        for whole in (text.removesuffix(FIRST) for text in fixed(region) if text.endswith(FIRST)):
            items = re.compile(re.escape(whole) + r"\[\d+\]")  # and no arithmetic on them
            found[f"len({whole})"] = sum(items.fullmatch(text) is not None for text in numbers)
    return found


def _decided(region: Region) -> Iterator[tuple[str, nn.Module]]:
    """Yield the poolings and norms of rows in a region by their texts; a kernel reads batch norms."""
    for node in (part.node for part in region.parts if part.reduces is not None and not region.layer):
        path, model = str(node.meta.get(LAYER, node.target)), node.graph.owning_module
        if model is not None and (node.op == "call_module" or LAYER in node.meta):
            yield attribute(model, path), model.get_submodule(path)


def _with_labels(value: Any) -> list[Any]:
    """Return the values in one that have labels, or it itself if it alone has one."""
    items = value if isinstance(value, tuple | list) else ()
    found = [each for item in items for each in _with_labels(item)]
    return found or ([value] if label_of(value) is not None else [])


def _defaults(kind: type[nn.Module]) -> dict[str, Any]:
    """Return the arguments of a constructor with their defaults; without one, a value that no number is."""
    arguments = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in arguments}


def _labelled(text: str, value: Any, found: Numbers) -> Any:
    """Return a value with its label, and the items of a sequence with theirs."""
    plain = next((kind for kind, carrier in CARRIERS.items() if isinstance(value, carrier)), type(value))
    if plain in (tuple, list):
        value = plain(_labelled(f"{text}[{place}]", each, found) for place, each in enumerate(value))
    elif plain is dict:
        return {key: _labelled(f"{text}[{key!r}]", each, found) for key, each in value.items()}
    elif is_record(value) and any(label_of(each) or is_record(each) for each in vars(value).values()):
        return with_fields(value, lambda name, each: _labelled(f"{text}.{name}", each, found))
    elif plain in (int, float):
        return carried(text, plain(value), found)
    elif plain is str:
        return str(value)
    return labelled(text, value)
