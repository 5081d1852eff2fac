"""A chain, or a call of another spec or of a reference, that does not fit."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class ChainCycle(FusegenError):
    sentence = "the spec refers to itself: {cycle}"
    hint = "write the step out as an expression in {running}"


class StepIgnoresValue(FusegenError):
    sentence = "this step does not use the running value {running!r}"
    hint = "name a spec, call one with its parameters, or write an expression in {running}"


class StepHasInputs(FusegenError):
    sentence = "{name!r} takes {takes}, so the running value alone does not make it a step"
    hint = "write the step as a call: {signature}"


class StepHasLayers(FusegenError):
    sentence = "{name!r} has layers of its own, so it cannot be used inside another spec"
    hint = "use its chain of steps instead"


class StepHasViews(FusegenError):
    sentence = "{name!r} reads {view}, so it cannot be used inside another spec"
    hint = "write its formula out"


class ReferenceTensors(FusegenError):
    sentence = "{reference} takes {takes}, and this spec has {found}"
    hint = "name a function of the spec's tensors, or leave the reference out"


class NotAReference(FusegenError):
    sentence = "{reference} cannot be a reference: {why}"
    hint = "name a function of torch or torch.nn.functional, or a module of torch.nn, of the spec's tensors"
