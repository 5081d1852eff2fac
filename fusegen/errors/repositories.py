"""A repository of kernels that cannot be written."""

from fusegen.errors.base import Sentence

NotARepository = Sentence(
    "'fusegen hub' did not write this, and nothing in the folder was changed",
    "choose another folder, or move the file",
)
Edited = Sentence(
    "this file was changed after 'fusegen hub' wrote it, and nothing in the folder was changed",
    "move or delete it; 'fusegen hub' then writes it again",
)
NotAKernelName = Sentence(
    "{name!r} is no name of a repository of kernels",
    "name the folder with 2 to 64 of a-z, 0-9 and hyphens, first a letter; 'layers' is taken",
)
NotALayer = Sentence(
    "{name} has {what}, which a layer without state cannot have",
    "name specs of pointwise functions; 'fusegen list' shows them",
)
