"""Numbers of a model's attributes that know where they are, and attributes as Python text."""

import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn

from fusegen.models.lift.constructor_numbers import Numbers, carried
from fusegen.models.lift.labels import CARRIERS, label_of, labelled

PATHS = (nn.Sequential, nn.ModuleList, nn.ParameterList)
ACTIVATIONS = nn.modules.activation.__name__
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
OF_NORMS = ("eps", "num_groups")


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

    The attributes of the model's own modules, those of activations that the constructor decides, and the eps
    and the groups of norms.

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
    elif isinstance(module, NORMS):
        yield from (name for name in OF_NORMS if isinstance(vars(module).get(name), int | float))
    elif not type(module).__module__.startswith("torch.nn"):
        yield from (name for name in vars(module) if not name.startswith("_") and name != "training")


def _defaults(kind: type[nn.Module]) -> dict[str, Any]:
    """Return the arguments of a constructor with their defaults; without one, a value that no number is."""
    arguments = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in arguments}


def _labelled(text: str, value: Any, found: Numbers) -> Any:
    """Return a value with its label, and the items of a sequence with theirs."""
    plain = next((kind for kind, carrier in CARRIERS.items() if isinstance(value, carrier)), type(value))
    if plain in (tuple, list):
        value = plain(_labelled(f"{text}[{place}]", each, found) for place, each in enumerate(value))
    elif plain in (int, float):
        return carried(text, plain(value), found)
    elif plain is str:
        return str(value)
    return labelled(text, value)
