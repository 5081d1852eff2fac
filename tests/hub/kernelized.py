"""A repository in small models of transformers by `kernels.kernelize`; it prints what ran, as JSON.

It is a process of its own, since `kernels` is the name of a file of the tests, too.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import kernels
import torch
import transformers
from kernels._rust import Digest, DigestAlgorithm, Metadata
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import activations

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
MODELS: dict[str, tuple[dict[str, int], str, str]] = {  # arguments, activation, layer
    "GPT2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}, "NewGELUActivation", "GeluTanh"),
    "Llama": ({**SMALL, "intermediate_size": 64}, "SiLUActivation", "Silu"),
    "Bert": ({**SMALL, "intermediate_size": 64}, "GELUActivation", "Gelu"),
}
IDS = torch.arange(14).reshape(2, 7)
FULL = "FUSEGEN_FULL" in os.environ
INDUCTOR = MODELS if FULL else ("GPT2",)  # which models Inductor compiles, for 5 s each; others are traced


class Operators(TorchDispatchMode):
    """Records the operators of fusegen that are called."""

    called: tuple[str, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        if "fusegen" in str(func):
            self.called += (str(func).split(".")[1],)
        return func(*args, **(kwargs or {}))


def kernelized(folder: Path, name: str) -> dict[str, Any]:
    """The operators that a model runs with layers of the repository, and its differences without them."""
    arguments, activation, layer = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**arguments)
    model = getattr(transformers, f"{name}Model")(config).eval()
    before, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    kernels.replace_kernel_forward_from_hub(getattr(activations, activation), activation)
    layers = {activation: {"cpu": kernels.LocalLayerRepository(folder, layer_name=layer)}}
    with kernels.use_kernel_mapping(layers, inherit_mapping=False):
        mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
        kernels.kernelize(model, mode=mode, device="cpu", use_fallback=False)
    with torch.no_grad(), Operators() as operators:
        model(IDS)
    backend = "inductor" if name in INDUCTOR else "aot_eager"
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    values = [each(IDS).last_hidden_state for each in (before, model, compiled, exact)]
    weights = torch.linspace(-1, 1, values[0].numel()).reshape(values[0].shape)
    for value in (*values[:2], values[3]):
        (value * weights).sum().backward()
    return {
        "called": operators.called,
        "eager": (values[1] - values[0]).abs().max().item(),
        "compiled": (values[2] - values[0]).abs().max().item(),
        "gradients": [_furthest(each, exact) for each in (model, before)],
    }


def _furthest(model: Any, exact: Any) -> float:
    """Return how far a gradient is from that in float64, of the largest number of its parameter."""
    pairs = zip(model.parameters(), exact.parameters(), strict=True)
    slopes = [(ours.grad, theirs.grad) for ours, theirs in pairs if theirs.grad is not None]
    return max(((own - true).abs().max() / true.abs().max()).item() for own, true in slopes)


def main(folder: Path) -> None:
    """Print the results of every model, and of the functions."""
    for variant in sorted((folder / "build").iterdir()):
        digest = Metadata.read_from_file(variant / "metadata.json").digest
        assert digest is not None
        digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    kernel = kernels.get_local_kernel(folder)
    x = torch.linspace(-4, 4, 33)
    silu = (kernel.silu(x) - torch.nn.functional.silu(x)).abs().max().item()
    found = {name: kernelized(folder, name) for name in MODELS}
    print(json.dumps({"all": kernel.__all__, "silu": silu, "models": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
