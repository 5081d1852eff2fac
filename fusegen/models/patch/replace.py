"""The activations and norms of a model, replaced and put back."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import jit, nn

from fusegen.models.patch import causal_losses
from fusegen.models.patch.activations import Function, function_of, is_named, replacement
from fusegen.models.patch.batches import InRow, in_row
from fusegen.models.patch.derived import derive, is_derived, plan_of, restore
from fusegen.models.patch.gates import gate_of
from fusegen.models.patch.handed import link_of, part
from fusegen.models.patch.library import module
from fusegen.models.patch.paired import KERNEL, Sequential, paired
from fusegen.models.patch.patch_report import Kept, Replaced, Report
from fusegen.models.patch.rewritten import Rewritten, rewritten
from fusegen.models.patch.row_layers import condition, row_layer_of, why_kept
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
    replaced, kept = _joined(model, folder) if folder is not None else [], []
    joined = _rewritten(model)
    rows, slower = _of_rows(model)
    losses, other_losses = _losses(model)
    gated_layers = [*joined, *_gated(model), *rows, *losses]
    of = function_of(model)
    if isinstance(of, Function) or is_named(model):
        kept.append(Kept("", repr(model), of if isinstance(of, str) else ITSELF))
    swapped, stayed = _swapped(model)
    together.join(module(name).KERNELS for name in {each.module for each in (*gated_layers, *swapped)})
    replaced, kept = [*replaced, *gated_layers, *swapped], [*kept, *slower, *other_losses, *stayed]
    return Report(tuple(replaced), tuple(kept), before, lambda: unpatch(model))


def _joined(model: nn.Module, folder: Path | str) -> list[Replaced]:
    """Give pairs of convolutions and activations in a model their kernels."""
    from fusegen.models.patch.pairs import built, pairs  # which imports the compiler

    found = [*pairs(model)]
    modules = built(found, Path(folder))
    together.join(each.KERNELS for each in modules.values())
    for pair in found:
        pair.join(modules[pair.name])
    return [Replaced(pair.path, f"{pair.layer!r} and {pair.activation!r}", pair.name) for pair in found]


def _swapped(model: nn.Module) -> tuple[list[Replaced], list[Kept]]:
    """Put generated modules in the place of the activations that layers of a model hold."""
    replaced: list[Replaced] = []
    kept: list[Kept] = []
    made: dict[nn.Module, nn.Module] = {}
    for holder, name, path, layer in [*_places(model)]:
        of = function_of(layer)
        if _runs_in_kernel(holder, layer):
            continue
        if isinstance(of, str):
            if is_named(layer) and not is_derived(layer) and row_layer_of(layer) is None:
                kept.append(Kept(path, _shown(layer), of))
            continue
        if layer not in made:
            made[layer] = replacement(layer, of)
            vars(made[layer])[ORIGINAL] = (layer,)  # in a tuple, so that it is no child
        holder._modules[name] = made[layer]
        file = type(made[layer]).__module__.rpartition(".")[2]
        replaced.append(Replaced(path, _shown(layer), file))
    return replaced, kept


def _gated(model: nn.Module) -> list[Replaced]:
    """Give the gated feed-forward layers of a model their kernels."""
    replaced = []
    for path, layer in layers(model):
        gate = gate_of(layer)
        if gate is not None:
            replaced.append(Replaced(path, f"{type(layer).__name__}, {gate}", gate.gated))
            derive(layer, gate)
    return replaced


def _rewritten(model: nn.Module) -> list[Replaced]:
    """Give norms their kernels with what is around them, in the layers that call both."""
    replaced = []
    for path, layer in layers(model):
        if is_derived(layer):
            continue
        row, link = in_row(layer), link_of(model, path)
        found = rewritten(layer, link)
        if row is not None:
            texts = tuple(f"{each.name} and {each.act}" for each in row.parts)
            replaced += _derived(path, layer, row, texts)
        elif found is not None:
            replaced += _derived(path, layer, *found)
            if link is not None:
                link.join(layer)
    return replaced


def _derived(
    path: str, layer: nn.Module, plan: Rewritten | InRow, texts: tuple[str, ...]
) -> list[Replaced]:
    """Give a layer the forward of a plan."""
    name = type(layer).__name__
    parts = zip(plan.parts, texts, strict=True)
    made = [Replaced(path, f"{name}, {text}", part.module, part.when(layer)) for part, text in parts]
    derive(layer, plan)
    return made


def _of_rows(model: nn.Module) -> tuple[list[Replaced], list[Kept]]:
    """Give the norms and softmax layers of a model their kernels, where these are faster."""
    replaced: list[Replaced] = []
    kept: list[Kept] = []
    first = next(model.parameters(), torch.empty(0))
    for path, layer in layers(model):
        of = None if is_derived(layer) else row_layer_of(layer)
        if of is None:
            continue
        like = next(layer.parameters(), first)
        where = (like.device.type, like.dtype)
        why = of if isinstance(of, str) else why_kept(of, *where)
        if isinstance(of, str) or why:
            kept.append(Kept(path, _shown(layer), why))
            continue
        replaced.append(Replaced(path, _shown(layer), of.name, condition(of, *where)))
        derive(layer, of)
    return replaced, kept


def _losses(model: nn.Module) -> tuple[list[Replaced], list[Kept]]:
    """Give causal language models a loss that makes no copy of the logits."""
    replaced: list[Replaced] = []
    kept: list[Kept] = []
    for path, layer in layers(model):
        of = causal_losses.loss_of(layer)
        if isinstance(of, str):
            kept.append(Kept(path, f"{type(layer).__name__}, {causal_losses.FUNCTION}", of))
        elif of is not None:
            text = f"{type(layer).__name__}, {of.original.__name__}"
            replaced.append(Replaced(path, text, of.module, causal_losses.when(layer)))
            vars(layer)[causal_losses.ATTRIBUTE] = of
    return replaced, kept


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
        part(layer)
        if is_derived(layer):
            restore(layer)
    return len(found) + len(derived) + losses


def _has_kernel(layer: nn.Module) -> bool:
    """Tell if a layer is a gated one with a kernel, or a convolution with one."""
    return KERNEL in vars(layer) or (is_derived(layer) and not isinstance(layer, Sequential))


def _runs_in_kernel(holder: nn.Module, layer: nn.Module) -> bool:
    """Tell if a layer runs in a kernel with other layers of its holder."""
    if isinstance(holder, Sequential):
        return layer in paired(holder)
    acts = getattr(plan_of(holder), "acts", ())
    return any(holder._modules.get(name) is layer for name in acts)


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
