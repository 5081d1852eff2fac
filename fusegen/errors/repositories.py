"""A repository of kernels that cannot be written."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class NotARepository(FusegenError):
    sentence = "'fusegen hub' did not write this, and nothing in the folder was changed"
    hint = "choose another folder, or move the file"


class Edited(FusegenError):
    sentence = "this file was changed after 'fusegen hub' wrote it, and nothing in the folder was changed"
    hint = "move or delete it; 'fusegen hub' then writes it again"


class NotAKernelName(FusegenError):
    sentence = "{name!r} is no name of a repository of kernels"
    hint = "name the folder with 2 to 64 of a-z, 0-9 and hyphens, first a letter; 'layers' is taken"


class NotALayer(FusegenError):
    sentence = "{name} has {what}, which a layer without state cannot have"
    hint = "name specs of pointwise functions; 'fusegen list' shows them"
