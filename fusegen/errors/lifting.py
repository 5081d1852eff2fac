"""A model that cannot be lifted."""

from fusegen.errors.base import FusegenError, Sentence


class NotAModel(FusegenError):
    sentence = "this is no model to lift: {why}"
    hint = "{remedy}"


class NotCaptured(FusegenError):
    sentence = "it cannot be captured as operators, as {why}"


class NotLifted(FusegenError):
    sentence = "{node} has no place in a spec: {why}"
    hint = "{remedy}"


class NoRegion(NotLifted):
    sentence = "{node} has no region that is worth a kernel, since {why}"


SpecExists = Sentence(
    "the spec exists and was not lifted from {source}", "choose another --name, or move the file"
)
SpecEdited = Sentence(
    "the spec was edited since it was lifted, and lift would overwrite it",
    "choose another --name, or move the file",
)
ModuleEdited = Sentence(
    "the file was edited since it was lifted, and lift would overwrite it",
    "choose another --name, or move the file",
)
OtherSpec = Sentence(
    "the spec is not the one that {writer} writes", "give another folder, or move the file"
)


class NotCompared(FusegenError):
    sentence = (
        "the file is written, and nothing was compared: it takes more than {least} elements, "
        "also at the smallest sizes at which the model makes the same calls"
    )
    hint = (
        "call it and the model on inputs of your own, or give get_inputs and get_init_inputs smaller sizes"
    )


class Differs(FusegenError):
    sentence = "the module is not the model: {what}"
    hint = "this is an error in fusegen; please report it with the model, and do not use the module"
