"""A measurement that cannot be made, or a table of them that cannot be read."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class DoesNotFit(FusegenError):
    sentence = "{case} needs about {needed} GiB, and {free} GiB are free"
    hint = "{fits} elements fit"


class NothingToMeasure(FusegenError):
    sentence = "none of {names} is made for {dtypes}"
    hint = "leave --dtype out, or add it to the spec's dtypes"


class NothingToTune(FusegenError):
    sentence = "there is no CUDA GPU here"
    hint = "run it on the GPU that the kernels are for"


class Unequal(FusegenError):
    sentence = "launched as {launch} it gives other bits than as {other}"
    hint = "this is an error in fusegen; please report it with the GPU's name"


class BadLaunches(FusegenError):
    sentence = "this is no table of launches: {why}"
    hint = "leave it to 'fusegen tune', or see fusegen/core/launch.toml"


class NoPicture(FusegenError):
    sentence = "there is no picture of this: {why}"
    hint = "name a spec with float32 and a file.svg or file.png"


class NoSuchCompetitor(FusegenError):
    sentence = "this is no module that can compete: {why}"
    hint = "give FILE.py:CLASS, a torch.nn.Module that is made as ModelNew is"


class NoMeasurements(FusegenError):
    sentence = "these are no measurements that can be compared: {why}"
    hint = "give a file that this version's 'fusegen bench --json FILE' has written"


class BadShape(FusegenError):
    sentence = "{shape!r} is no shape"
    hint = "write sizes with an x between them, such as 4096x4096"


class RefusedShape(FusegenError):
    sentence = "{name} does not take an input of this shape: {why}"
    hint = "it declares {own}; leave --shape out, or give one that its layers and other inputs fit"
