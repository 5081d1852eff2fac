"""The C++ functions of a kernel: one text where devices and math types compute the same.

A function that stands for both math types is a template. So is one on CUDA of a math type that stands for
others: float for FastFloat, and double for PlainDouble. Of two templates that of float has another name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from fusegen.codegen.printers.both import for_both
from fusegen.codegen.printers.cpp import CppPrinter
from fusegen.core.ir import Kernel, Math
from fusegen.core.targets import Device

FLOAT_SUFFIX = "_float"  # behind the name of the function of float, if that of double is a template
Opens = Collection[Math]


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of one element."""

    shared: tuple[str, ...]  # the text of the one that both devices take
    own: Mapping[Device, tuple[str, ...]]  # by device, those that it alone takes
    # by device, the statement that calls the function of float, if that has another name
    float_call: Mapping[Device, str]


def functions(
    kernels: Mapping[Device, tuple[Kernel, ...]],  # by device, the kernel in one math type or in both
    opens: Opens,  # the math types that stand for other types, too, on CUDA
    opens_on_cpu: Opens = (),  # and on the CPU
) -> Functions:
    """Return the functions of a kernel in its math types on both devices."""
    common = _template([*kernels[Device.CPU], *kernels[Device.CUDA]])
    left = {device: [k for k in several if not common.covers(k)] for device, several in kernels.items()}
    alone = [k for several in left.values() for k in several]
    if all(len(left[d]) < len(kernels[d]) for d in kernels) and all(k.math is Math.FLOAT for k in alone):
        shared, text = True, common.text(opens)
        own = {d: _left(left[d], common, opens if d.fast_types else opens_on_cpu) for d in kernels}
    else:
        shared, text = False, ""
        own = {d: _alone(kernels[d], opens if d.fast_types else opens_on_cpu) for d in kernels}
    return Functions(
        (text,) if shared else (),
        {device: texts for device, (texts, _) in own.items()},
        {device: call for device, (_, call) in own.items()},
    )


def definitions(kernels: Iterable[Kernel], opens: Opens) -> tuple[str, ...]:
    """Return the functions of one device."""
    texts, _ = _alone(tuple(kernels), opens)
    return texts


@dataclass(frozen=True, slots=True)
class _Template:
    base: Kernel  # the kernel in double, if there is one
    both: Kernel | None  # the one of both math types, if a kernel in float has the same text

    def covers(self, kernel: Kernel) -> bool:
        """Return True if the text is the kernel's, too."""
        if kernel.math is self.base.math:
            return _generic(kernel) == _generic(self.base)
        both = for_both(kernel, self.base)
        return both is not None and self.both is not None and _generic(both) == _generic(self.both)

    def is_open(self, opens: Opens) -> bool:
        """Return True if it is a template."""
        return self.both is not None or self.base.math in opens

    def text(self, opens: Opens) -> str:
        """Return the function."""
        return CppPrinter(self.both or self.base, self.is_open(opens)).definition()


def _template(kernels: Iterable[Kernel]) -> _Template:
    double = [kernel for kernel in kernels if kernel.math is Math.DOUBLE]
    single = [kernel for kernel in kernels if kernel.math is Math.FLOAT]
    base = (double or single)[0]
    found = (for_both(kernel, base) for kernel in single) if double else iter(())
    return _Template(base, next(filter(None, found), None))


def _alone(kernels: tuple[Kernel, ...], opens: Opens) -> tuple[tuple[str, ...], str]:
    """Return the functions of one device, and the call of that of float, if it has another name."""
    first = _template(kernels)
    texts, call = _left([k for k in kernels if not first.covers(k)], first, opens)
    return (*texts, first.text(opens)), call


def _left(kernels: Iterable[Kernel], beside: _Template, opens: Opens) -> tuple[tuple[str, ...], str]:
    """The functions of kernels in float beside that of double, and the call of one of another name."""
    texts, call = [], ""
    for kernel in kernels:
        renamed = beside.is_open(opens) and kernel.math in opens
        named = replace(kernel, name=kernel.name + FLOAT_SUFFIX) if renamed else kernel
        texts.append(CppPrinter(named, kernel.math in opens).definition())
        call = CppPrinter(named).element() if renamed else ""
    return tuple(texts), call


def _generic(kernel: Kernel) -> str:
    return CppPrinter(kernel, generic=True).definition()
