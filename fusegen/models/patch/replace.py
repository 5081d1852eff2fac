"""The activations and norms of a model, replaced and put back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import jit, nn

from fusegen.models.patch import causal_losses, handed
from fusegen.models.patch.activations import Function, function_of, is_named, replacement
from fusegen.models.patch.derived import Found, is_derived, plan_of, restore
from fusegen.models.patch.gates import gate_of
from fusegen.models.patch.library import module
from fusegen.models.patch.paired import KERNEL, InRow, in_kernels, in_row
from fusegen.models.patch.patch_report import Kept, Replaced, Report
from fusegen.models.patch.rewritten import rewritten
from fusegen.models.patch.row_layers import condition, row_layer_of
from fusegen.models.reader.row_gains import slower
from fusegen.runtime import together

ORIGINAL = "fusegen_original"  # the attribute of a generated module that holds what it replaced
ITSELF = "an activation is replaced in the module that holds it"


def patch(model: nn.Module, folder: Path | str | None = None) -> Report:
    """Replace activations, norms, rotary embeddings and losses of a model by generated modules, in place.

    A layer is one if its forward computes a function of the library. A gated feed-forward layer computes
    the activation and the product by one kernel. A layer that reduces rows runs a kernel where that is
    known to be faster. Values and gradients are those of the library's certificates. Names in the
    state_dict stay, and so do parameters. An activation that several places share is one afterwards, too.

    Args:
        model: it is changed.
        folder: of specs and modules, for convolutions with the activations behind them in an nn.Sequential:
            one kernel adds the bias and applies the activation. Both stay where they are, and run as they
            are once one is changed or watched. Without a folder, nothing is written.

    Returns:
        What was replaced, and what was not and why; its `undo` puts everything back.

    Raises:
        TypeError: the model is no torch.nn.Module.
        FusegenError, SpecErrors: a file of the folder is refused.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fusegen.patch takes a torch.nn.Module, not {type(model).__name__}")
    before = sum(1 for *_, layer in _places(model) if _original(layer) is not None)
    before += sum(_has_kernel(each) + causal_losses.is_patched(each) for each in model.modules())
    replaced = _joined(model, folder) if folder is not None else []
    found = [each for rule in RULES for each in _applied(model, rule)]
    of = function_of(model)
    if isinstance(of, Function) or is_named(model):
        found.insert(0, Kept("", repr(model), of if isinstance(of, str) else ITSELF))
    found += _swapped(model)
    ours = [each for each in found if isinstance(each, Replaced)]
    together.join(module(name).KERNELS for name in {each.module for each in ours})
    kept = tuple(each for each in found if isinstance(each, Kept))
    return Report((*replaced, *ours), kept, before, lambda: unpatch(model))


def _in_forward(model: nn.Module, path: str, layer: nn.Module) -> Found | None:
    """Return the kernels of what a forward, or an nn.Sequential, calls in a row."""
    row = in_row(layer)
    return rewritten(layer, handed.link_of(model, path)) if row is None else row.found(layer)


def _of_gate(model: nn.Module, path: str, layer: nn.Module) -> Found | None:
    """Return the kernel of a gated feed-forward layer."""
    gate = gate_of(layer)
    line = f"{type(layer).__name__}, {gate}"
    return None if gate is None else Found.of(gate, (line, gate.gated, ""))


def _of_rows(model: nn.Module, path: str, layer: nn.Module) -> Found | Kept | None:
    """Return the kernel of a norm or softmax layer, where it is faster."""
    of = row_layer_of(layer)
    if of is None:
        return None
    like = next(layer.parameters(), next(model.parameters(), torch.empty(0)))
    where = (like.device.type, like.dtype)
    why = of if isinstance(of, str) else "" if of.modes(*where) else slower(*where)
    if isinstance(of, str) or why:
        return Kept(path, _shown(layer), why)
    return Found.of(of, (_shown(layer), of.name, condition(of, *where)))


def _of_loss(model: nn.Module, path: str, layer: nn.Module) -> Found | Kept | None:
    """Return the loss of a causal language model that makes no copy of the logits."""
    of = causal_losses.loss_of(layer)
    if isinstance(of, str):
        return Kept(path, f"{type(layer).__name__}, {causal_losses.FUNCTION}", of)
    return None if of is None else of.found(layer)


# What patch looks for in each layer of a model; those with a kernel are not looked at again.
Rule = Callable[[nn.Module, str, nn.Module], Found | Kept | None]
RULES: tuple[Rule, ...] = (_in_forward, _of_gate, _of_rows, _of_loss)


def _applied(model: nn.Module, rule: Rule) -> Iterator[Replaced | Kept]:
    """Give layers of a model the kernels that a rule finds."""
    for path, layer in layers(model):
        found = None if is_derived(layer) and rule is not _of_loss else rule(model, path, layer)
        if isinstance(found, Kept):
            yield found
        elif found is not None:
            yield from (Replaced(path, *line) for line in found.lines)
            found.join(layer)


def _joined(model: nn.Module, folder: Path | str) -> list[Replaced]:
    """Give pairs of convolutions and activations in a model their kernels."""
    from fusegen.models.patch.pairs import built, pairs  # which imports the compiler

    found = [*pairs(model)]
    modules = built(found, Path(folder))
    together.join(each.KERNELS for each in modules.values())
    for pair in found:
        pair.join(modules[pair.name])
    return [Replaced(pair.path, f"{pair.layer!r} and {pair.activation!r}", pair.name) for pair in found]


def _swapped(model: nn.Module) -> Iterator[Replaced | Kept]:
    """Put generated modules in the place of the activations that layers of a model hold."""
    made: dict[nn.Module, nn.Module] = {}
    for holder, name, path, layer in [*_places(model)]:
        of = function_of(layer)
        if layer in in_kernels(holder):
            continue
        if isinstance(of, str):
            if is_named(layer) and not is_derived(layer) and row_layer_of(layer) is None:
                yield Kept(path, _shown(layer), of)
            continue
        if layer not in made:
            made[layer] = replacement(layer, of)
            vars(made[layer])[ORIGINAL] = (layer,)  # in a tuple, so that it is no child
        holder._modules[name] = made[layer]
        yield Replaced(path, _shown(layer), type(made[layer]).__module__.rpartition(".")[2])


def unpatch(model: nn.Module) -> int:
    """Put the layers back, in place, that `patch` replaced in a model or in what it is a copy of.

    Returns:
        The number of places.
    """
    places = [(holder, name, layer, _original(layer)) for holder, name, _, layer in _places(model)]
    found = [(holder, name, ours, before) for holder, name, ours, before in places if before is not None]
    for holder, name, ours, before in found:
        before.train(ours.training)
        holder._modules[name] = before
    derived = [layer for layer in model.modules() if _has_kernel(layer)]
    losses = sum(map(causal_losses.undo, model.modules()))
    for layer in model.modules():
        vars(layer).pop(KERNEL, None)
        handed.part(layer)
        if is_derived(layer):
            restore(layer)
    return len(found) + len(derived) + losses


def _has_kernel(layer: nn.Module) -> bool:
    """Tell if a layer has a kernel or a plan; that of a holder of kernels alone is none."""
    return KERNEL in vars(layer) or (is_derived(layer) and plan_of(layer) != InRow())


def _places(model: nn.Module) -> Iterator[tuple[nn.Module, str, str, nn.Module]]:
    """Every place of a layer: its holder, its name there, its path, and the layer; each holder once."""
    for path, holder in layers(model):
        for name, layer in holder._modules.items():
            if layer is not None:
                yield holder, name, f"{path}.{name}".lstrip("."), layer


def _original(layer: nn.Module) -> nn.Module | None:
    found: tuple[nn.Module | None, ...] = vars(layer).get(ORIGINAL, (None,))
    return found[0]


def _shown(layer: nn.Module) -> str:
    return repr(layer) if not layer._modules else type(layer).__name__


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a model, each with its path, but for what TorchScript has compiled."""
    for path, layer in model.named_modules():
        if not isinstance(layer, jit.ScriptModule):
            yield path, layer
