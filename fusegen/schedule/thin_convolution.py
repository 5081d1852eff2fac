"""Thin convolutions: those of few input channels, which run as one kernel with what comes behind them.

`CONDITIONS` says which convolutions these are, as far as a spec tells; the runtime's `thin.py` has what is
known at a call only. The kernels are `cuda/thin_convolution.cuh`, by warps, and
`cuda/thin_group_convolution.cuh`, by warpgroups.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fusegen.core.constructor import FEW_CHANNELS, Layer
from fusegen.core.spec import Spec

MOST_CHANNELS, MOST_KERNEL, STRIDES = FEW_CHANNELS, 7, (1, 2)
MOST_WORTH = 16, 200  # input channels, and terms of a sum, up to which one kernel is faster
LEAST_WORTH = 32, 2**22  # columns and elements of an output, from which it is
DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros"}
SHARED = 232_448  # bytes that a block may have on sm_90; the call asks the chip that it runs on
ROWS, TERMS, PIXELS, NARROWEST = 32, 8, 256, 32  # of a block, of a step, of a tile, and its least width
VECTOR = 4  # elements of float32
GROUP_ROWS = 64  # of a product of a warpgroup, whose steps have the terms of 4 channels each
TERAFLOPS = {80: 156, 90: 495}  # of TF32, by chip
TERABYTES = {80: 1.79, 90: 4.23}  # a second, of a copy


@dataclass(frozen=True, slots=True)
class Thin:
    """A thin convolution, with the numbers of its rows before those of its columns."""

    # channels, outputs: of the input and of the output
    channels: int
    outputs: int
    # kernel, stride, padding: its sizes
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    # the batch and the size of the declared input; none where layers come before
    image: tuple[int, int, int] | None = None

    @property
    def terms(self) -> int:
        """The products of a sum."""
        return self.channels * self.kernel[0] * self.kernel[1]

    @property
    def has_few_terms(self) -> bool:
        """True if one kernel beats PyTorch's convolution and a kernel where the output is large."""
        channels, terms = MOST_WORTH
        return self.channels <= channels and self.terms <= terms

    @property
    def is_by_warpgroups(self) -> bool:
        """True if float32 runs by warpgroups on sm_90: most of their rows and terms are channels."""
        return self.channels >= VECTOR and -self.outputs % GROUP_ROWS < ROWS

    @property
    def is_large(self) -> bool:
        """True if the declared output is as large as it has to be for that."""
        (columns, elements), (height, width) = LEAST_WORTH, self.size
        images = self.image[0] if self.image else 0
        return width >= columns and images * self.outputs * height * width >= elements

    @property
    def size(self) -> tuple[int, int]:
        """The rows and columns of the declared output; 0 where none is known."""
        if self.image is None:
            return 0, 0
        each = zip(self.image[1:], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((size + 2 * pad - kernel) // step + 1 for size, kernel, step, pad in each)
        return height, width

    @property
    def shared(self) -> int:
        """The bytes of shared memory that a block takes in float32, with the smallest tile of the input."""
        steps = -(-self.terms // TERMS)
        planes = self.channels + bool(self.terms % TERMS)
        columns = [NARROWEST << k for k in range((PIXELS // NARROWEST).bit_length())]
        tile = planes * min(map(self._plane, columns))
        return steps * (2 * ROWS * TERMS + TERMS) * 4 + 2 * tile * 4

    def _plane(self, most: int) -> int:
        """The elements of a channel in a tile of at most so many columns, with those between its rows."""
        height, width = self.size if self.image else (PIXELS, most)
        columns = min(most, width)
        rows = (min(PIXELS // columns, height) - 1) * self.stride[0] + self.kernel[0]
        taken = (columns - 1) * self.stride[1] + self.kernel[1]
        if self.image is None or self.image[2] % VECTOR == 0:  # reads vectors, from a multiple on
            taken = -(-(taken + -self.padding[1] % VECTOR) // VECTOR) * VECTOR
        return (rows | 1) * ((taken + 15) // 32 * 32 + 16)

    def limits(self, chip: int) -> tuple[float, float] | None:
        """The milliseconds of a chip's tensor cores and of its memory, of the declared input in float32."""
        if self.image is None:
            return None
        batch, height, width = self.image
        outputs = batch * self.outputs * self.size[0] * self.size[1]
        products, moved = 3 * outputs * self.terms, outputs + batch * self.channels * height * width
        return 2 * products / TERAFLOPS[chip] / 1e9, 4 * moved / TERABYTES[chip] / 1e9


# milliseconds in float32 on an H200, with the chain of docs/decisions/thin-convolutions.md
MEASURED = {Thin(8, 64, (3, 3), (1, 1), (0, 0), (128, 128, 128)): 0.273}
OF_MEASURED = 90  # the chip


Given = Mapping[str, Any]
# what a layer has to be, and why another one keeps the convolution of PyTorch
CONDITIONS: tuple[tuple[str, Callable[[Given], bool]], ...] = (
    ("its sizes are not all known", lambda of: None not in (_known(of), of.get("out_channels"))),
    (f"it has more than {MOST_CHANNELS} input channels", lambda of: of["in_channels"] <= MOST_CHANNELS),
    (f"its kernel is larger than {MOST_KERNEL}", lambda of: max(pair(of["kernel_size"])) <= MOST_KERNEL),
    ("its stride is neither 1 nor 2", lambda of: all(step in STRIDES for step in pair(of["stride"]))),
    ("its padding is a word", lambda of: not isinstance(of["padding"], str)),
    ("it pads with other values than zeros", lambda of: of["padding_mode"] == "zeros"),
    ("it has a dilation", lambda of: pair(of["dilation"]) == (1, 1)),
    ("it has groups", lambda of: of["groups"] == 1),
)


def pair(value: Any) -> tuple[int, int]:
    """Return a size for both dimensions, which one number gives, too."""
    found: tuple[int, int] = tuple(value) if isinstance(value, tuple) else (value, value)
    return found


def obstacle(spec: Spec) -> str:
    """Why a Conv2d right in front of a kernel stays PyTorch's, in words; empty where it is a thin one."""
    layer = spec.producer
    if layer is None or layer.kind != "Conv2d":
        return "there is no Conv2d right in front of the kernel"
    if spec.inputs[-1].split is not None:
        return "the kernel takes its output in halves"
    if spec.numerics == "eager":
        return "eager numerics are those of PyTorch"
    if spec.is_prepared:
        return "the kernel takes a mask or a view"
    return obstacle_of(dict(layer.given))


def obstacle_of(given: Given) -> str:
    """Return why a Conv2d of some arguments is no thin one, in words; empty where it is."""
    given = {**DEFAULTS, **given}
    why = next((reason for reason, holds in CONDITIONS if not holds(given)), "")
    if not why and sized(given).shared > SHARED:
        return "its weights do not fit shared memory"
    return why


def sized(given: Given) -> Thin:
    """Return the thin convolution of some arguments that fit."""
    given = {**DEFAULTS, **given}
    kernel, stride, padding = (pair(given[name]) for name in ("kernel_size", "stride", "padding"))
    return Thin(int(given["in_channels"]), int(given["out_channels"]), kernel, stride, padding)


def thin(spec: Spec) -> Thin | None:
    """Return the thin convolution right in front of a spec's kernel, if there is one."""
    layer = spec.producer
    return _thin(spec, layer) if layer is not None and not obstacle(spec) else None


def _known(of: Given) -> Any:
    return None if "in_channels" not in of else of.get("kernel_size")


def _thin(spec: Spec, layer: Layer) -> Thin:
    of, shape = sized(dict(layer.given)), spec.inputs[0].shape
    first = spec.producers == (layer,) and len(shape) == 4
    image = (shape[0], shape[2], shape[3]) if first else None
    return replace(of, image=image)
