"""The element types: one row per dtype, with its names in C++ and CUDA and how it meets its math type."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.core.ir import Math


@dataclass(frozen=True, slots=True)
class Element:
    """One dtype.

    Attributes:
        dtype: its name in torch.
        scalar_type: its number in c10::ScalarType, fixed by PyTorch's stable ABI.
        compute: the type arithmetic is done in.
        cuda, cpp: its C++ type on each device.
        header: the header that declares `cpp`, if any.
        cuda_load, cuda_store: from the element `v` to the math type, and from a value `v` back,
            rounded to nearest, ties to even.
        cuda_store_two: packs two results into one 32-bit word, of 16-bit types.
    """

    dtype: str
    scalar_type: int
    compute: Math
    cuda: str
    cpp: str
    header: str = ""
    cuda_load: str = "v"
    cuda_store: str = "v"
    cuda_store_two: str = ""

    @property
    def bits(self) -> int:
        """The bits of one in memory."""
        return 16 if self.is_16_bit else 64 if self.compute is Math.DOUBLE else 32

    @property
    def is_16_bit(self) -> bool:
        """True if it keeps 16 of the 32 bits it is computed in."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def classic_header(self) -> str:
        """The header that declares `cpp` in every version of PyTorch."""
        return self.header.replace("torch/headeronly", "c10")

    @property
    def math(self) -> str:
        """The C++ name of the math type."""
        return self.compute.value


ELEMENTS = {
    element.dtype: element
    for element in (
        Element("float32", 6, Math.FLOAT, "float", "float"),
        Element("float16", 5, Math.FLOAT, "__half", "c10::Half", "torch/headeronly/util/Half.h",
                "__half2float(v)", "__float2half_rn(v)", "__floats2half2_rn(a, b)"),
        Element("bfloat16", 15, Math.FLOAT, "__nv_bfloat16", "c10::BFloat16",
                "torch/headeronly/util/BFloat16.h", "__bfloat162float(v)", "__float2bfloat16_rn(v)",
                "__floats2bfloat162_rn(a, b)"),
        Element("float64", 7, Math.DOUBLE, "double", "double"),
    )
}  # fmt: skip


def maths(dtypes: tuple[str, ...]) -> tuple[Math, ...]:
    """Return the math types that some dtypes need, each once."""
    return tuple(dict.fromkeys(ELEMENTS[dtype].compute for dtype in dtypes))
