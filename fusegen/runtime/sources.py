"""The C++ and CUDA sources of a module, and the texts that its kernels are built from."""

from dataclasses import dataclass
from typing import List


@dataclass(frozen=True)
class Sources:
    """The sources of a module, by what they hold.

    Attributes:
        cuda, cpu: the kernels of one element.
        mask: the kernels that keep or read a bitmask, on CUDA; empty where there are none.
        call: what a launch is given.
        arithmetic: double-word arithmetic.
        launch: the launch tables.
        cuda_prelude, cpu_prelude: the loops over elements.
        layout: shapes and strides.
        binding: the operators.
    """

    cuda: str
    cpu: str
    call: str
    arithmetic: str
    launch: str
    cuda_prelude: str
    cpu_prelude: str
    layout: str
    binding: str
    mask: str = ""

    @property
    def binding_texts(self) -> List[str]:
        """The texts of the operators, which both devices need."""
        return [self.call, self.layout, self.binding]

    @property
    def cpu_texts(self) -> List[str]:
        """The texts of a kernel for the CPU."""
        return [*self.binding_texts, self.arithmetic, self.cpu_prelude, self.cpu]

    @property
    def cuda_text(self) -> str:
        """The text that nvcc compiles."""
        return self.call + self.arithmetic + self.launch + self.cuda_prelude + self.cuda + self.mask
