"""The C++ of the kernels of channels: the phases are those of rows, behind one that finds the moments."""

from collections.abc import Mapping, Sequence

from fusegen.codegen import row_cpp
from fusegen.codegen.printed import FUNCTORS
from fusegen.compiler.channel_kernels import CompiledChannels
from fusegen.compiler.row_kernels import PhaseKernels
from fusegen.core.folds import LENGTH, SHARE
from fusegen.core.ir import Expr
from fusegen.core.method import Pass
from fusegen.core.targets import Device

NOTE = {**row_cpp.NOTE, Pass.BACKWARD: "The gradient reads the inputs, the mean and the variance."}


def parts(of: CompiledChannels) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    return row_cpp.printed(_ChannelsText(of), of, "CHANNEL_KERNELS")


class _ChannelsText(row_cpp.RowsText):
    header = "channels"
    notes = NOTE

    def __init__(self, of: CompiledChannels) -> None:
        super().__init__(of)
        self.channels = of.channels

    def _phase(self, which: Pass, of: PhaseKernels, name: str, tops: Mapping[str, Expr]) -> list[str]:
        """Return the type of a phase; the first one finds moments."""
        head, *lines = super()._phase(which, of, name, tops)
        is_first = of.phase is self.of.schedules[which].phases[0]
        if is_first:
            head = head.replace("Reduces<", "Moments<", 1).replace(", Mean, Variance>", ">")
        return [head, *(line for line in lines if "FUSEGEN_MADE" not in line)]

    def _functor(self, which: Pass, types: Sequence[str], device: Device) -> list[str]:
        spec, made, functor = self.of.spec, self.of.schedules[which], FUNCTORS[which]
        outputs, channels = len(made.phases[-1].elements.results), len(self.channels)
        counts = f"{len(made.inputs) - channels}, {outputs}, {len(spec.scalars)}"
        given = {scalar.name: f"param[{k}]" for k, scalar in enumerate(spec.scalars)}
        given |= {name: f"c[{k}]" for k, name in enumerate(self.channels)}
        given |= {LENGTH: "length", SHARE: "1 / length"}
        setting = "; ".join(f"p.{name} = {given[name]}" for name in made.values if name in given)
        sums = "; ".join(f"c[{k}] = p.{name}" for k, name in enumerate(made.sums))
        lines = [f"  FUSEGEN_CHANNEL_VALUES({setting})", f"  FUSEGEN_CHANNEL_SUMS({sums})"]
        if self.is_fast and device.fast_types:
            lines += ["  using Math32 = PlainDouble;", "  using Math16 = FastFloat;"]
        rows = f"Rows<{counts}, {functor}Values, {', '.join(types)}>"
        own = f"{channels}, {len(made.sums)}, {str(which is Pass.BACKWARD).lower()}"
        return [f"struct {functor} : Channels<{rows}, {own}> {{", *lines, "};"]
