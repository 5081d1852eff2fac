"""The target of a spec's reference: a function of PyTorch or a module of torch.nn, and nothing else.

A spec is a stranger's. Its reference is looked up attribute by attribute, imports nothing, and is called
only if its own `__module__` is one of those that hold PyTorch's functions of tensors.
"""

from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, NotAReference

FUNCTIONS: dict[str, tuple[type, ...]] = {  # the modules that define them, and of what kind they are there
    "torch": (BuiltinFunctionType,),
    "torch._C._nn": (BuiltinFunctionType,),
    "torch._C._special": (BuiltinFunctionType,),
    "torch.functional": (FunctionType,),
    "torch.nn.functional": (FunctionType,),
}
CLASSES = "torch.nn.modules."


def resolved(spec: Spec) -> Any:
    """Return the function or the class that a spec's reference names, without its words.

    Raises:
        NotAReference: the name leads to nothing, or to something else.
    """
    path, *_ = spec.reference.partition("(")
    found: Any = torch
    for name in path.split(".")[1:]:
        if not hasattr(found, name):
            raise _refused(spec, f"torch has no {path.removeprefix('torch.')}")
        found = getattr(found, name)
    module = getattr(found, "__module__", None) or ""
    is_layer = isinstance(found, type) and issubclass(found, torch.nn.Module) and module.startswith(CLASSES)
    if not is_layer and not isinstance(found, FUNCTIONS.get(module, ())):
        raise _refused(spec, "it is neither a function of tensors nor a module of torch.nn")
    return found


def _refused(spec: Spec, why: str) -> FusegenError:
    return NotAReference(spec.at("reference"), reference=spec.reference, why=why)
