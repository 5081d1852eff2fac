"""A measurement that cannot be made, or a table of them that cannot be read."""

from fusegen.errors.base import FusegenError, Sentence

DoesNotFit = Sentence("{case} needs about {needed} GiB, and {free} GiB are free", "{fits} elements fit")
NothingToMeasure = Sentence(
    "none of {names} is made for {dtypes}", "leave --dtype out, or add it to the spec's dtypes"
)
NothingToTune = Sentence("there is no CUDA GPU here", "run it on the GPU that the kernels are for")
Unequal = Sentence(
    "launched as {launch} it gives other bits than as {other}",
    "this is an error in fusegen; please report it with the GPU's name",
)
BadLaunches = Sentence(
    "this is no table of launches: {why}", "leave it to 'fusegen tune', or see fusegen/core/launch.toml"
)
NoPicture = Sentence(
    "there is no picture of this: {why}", "name a spec with float32 and a file.svg or file.png"
)


class NoSuchCompetitor(FusegenError):
    sentence = "this is no module that can compete: {why}"
    hint = "give FILE.py:CLASS, a torch.nn.Module that is made as ModelNew is"


NoMeasurements = Sentence(
    "these are no measurements that can be compared: {why}",
    "give a file that this version's 'fusegen bench --json FILE' has written",
)
NotTimed = Sentence(
    "{name!r} has dropout, and bench compares the results of what it times",
    "time its module's function in Python, as torch.utils.benchmark does",
)
BadShape = Sentence("{shape!r} is no shape", "write sizes with an x between them, such as 4096x4096")
RefusedShape = Sentence(
    "{name} does not take an input of this shape: {why}",
    "it declares {own}; leave --shape out, or give one that its layers and other inputs fit",
)
