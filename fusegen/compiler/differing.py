"""The results of a module that differ from eager's, or from their limits, at special inputs.

Mends are tried before a plan is made (`mended`). Here the kernels are tried that the plan takes.
"""

from collections.abc import Iterator
from functools import partial

from fusegen.compiler.mended import judged_kinds
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.special_trial import Trial
from fusegen.compiler.trial_faults import Fault
from fusegen.core.method import Pass, Piecewise, Variant, arithmetics, parts
from fusegen.core.targets import Device


def differing(of: Compiled) -> Iterator[Fault]:
    """Yield the faults of a module on the CPU; none of one that promises PyTorch's bits."""
    formula = of.declared.formula
    if of.declared.is_eager or of.algebra.pytorch_bits or not formula.declared.inputs:
        return
    kinds, trial = judged_kinds(of.spec), Trial(formula, of.programs)
    for which in Pass:
        for kernels in map(partial(of.in_variant, Device.CPU), sorted(_variants(of, which), key=repr)):
            yield from (fault for fault in trial.faults(kernels, which) if fault.kind in kinds)
            yield from trial.beyond(kernels, which)
        if _in_pieces(of, which) and "zero" in kinds:
            yield from trial.zeros_of_pieces(of.in_variant(Device.CPU, Variant.DOUBLE), which)


def _variants(of: Compiled, which: Pass) -> set[Variant]:
    dtypes = (dtype for dtype in of.spec.dtypes if dtype != "float64")
    methods = (of.plan.methods.get((which, Device.CPU, dtype)) for dtype in dtypes)
    return {each.variant for method in methods if method for each in arithmetics(method)}


def _in_pieces(of: Compiled, which: Pass) -> bool:
    method = of.plan.methods.get((which, Device.CPU, "float32"))
    return method is not None and any(isinstance(part, Piecewise) for part in parts(method))
