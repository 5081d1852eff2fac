"""A function that cannot be certified."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class NotBuilt(FusegenError):
    sentence = "the module of {name} is not what its spec says"
    hint = "run 'python -m fusegen build {name}' first"


class NoSuchCallable(FusegenError):
    sentence = "{name} leads to nothing that can be called: {why}"
    hint = "give a dotted name below a module that can be imported here, such as torch.nn.functional.gelu"


class NoDevice(FusegenError):
    sentence = "there is no CUDA GPU here"
    hint = "use --device cpu"


class Misbehaves(FusegenError):
    sentence = "{name} is not a function of tensors that can be certified: {why}"
    hint = "it has to return a new tensor of its input's shape, dtype and device, the same each time"


class WorkerKilled(FusegenError):
    sentence = "{name} is not certified: a process that computes exact values was killed, as for its memory"
    hint = "free memory, then run the same command with --resume"


class OtherFunction(FusegenError):
    sentence = (
        "{reference} is not this formula: they differ at {count} {dtype} inputs; the first is {first}, "
        "where the formula gives {real} and {reference} {got}; the worst is {worst}, with {worst_real} and "
        "{worst_got}"
    )
    hint = "name the function that the formula is, or leave the reference out"


class NotInSuite(FusegenError):
    sentence = "there is no activation {name!r} in the suite"
    hint = "it has {names}"
