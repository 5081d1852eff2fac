"""A function that cannot be certified."""

from fusegen.errors.base import Sentence

NotBuilt = Sentence(
    "the module of {name} is not what its spec says", "run 'python -m fusegen build {name}' first"
)
NoSuchCallable = Sentence(
    "{name} leads to nothing that can be called: {why}",
    "give a dotted name below a module that can be imported here, such as torch.nn.functional.gelu",
)
NoDevice = Sentence("there is no CUDA GPU here", "use --device cpu")
Misbehaves = Sentence(
    "{name} is not a function of tensors that can be certified: {why}",
    "it has to return a new tensor of its input's shape, dtype and device, the same each time",
)
WorkerKilled = Sentence(
    "{name} is not certified: a process that computes exact values was killed, as for its memory",
    "free memory, then run the same command with --resume",
)
OtherFunction = Sentence(
    "{reference} is not this formula: they differ at {count} {dtype} inputs; the first is {first}, "
    "where the formula gives {real} and {reference} {got}; the worst is {worst}, with {worst_real} and "
    "{worst_got}",
    "name the function that the formula is, or leave the reference out",
)
NotInSuite = Sentence("there is no activation {name!r} in the suite", "it has {names}")
