"""The text of the module of a spec whose rows are channels: that of rows, with statistics in its class."""

from fusegen.codegen import channel_cpp, row_text
from fusegen.codegen.printers.row_eager import row_statements
from fusegen.codegen.render import MODULE, Binding, fill, python
from fusegen.compiler.channel_kernels import CompiledChannels
from fusegen.core.folds import Level
from fusegen.core.manifest import Kernels
from fusegen.errors import NotStatistics

CONSTRUCTOR = (
    "num_features, eps={0!r}, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None"
)
MOMENTS = "moments"  # the tensor behind those of channels


def rendered(of: CompiledChannels, binding: Binding) -> tuple[str, Kernels]:
    """Return the text of a module, and the digests of its kernels.

    Raises:
        NoOlderBinding: its kernels are to be reached by another binding than that of the stable ABI.
        NotStatistics: its layer has other arguments than torch.nn's.
    """
    spec, parts = of.spec, channel_cpp.parts(of)
    if python.param_names(spec) != ["eps"] or len(of.channels) != 2:
        problem = "the scalar eps and two tensors along dimension 1, weight and bias, are what a layer has"
        raise NotStatistics(spec.span, problem=problem)
    context = row_text.context(of, binding, parts)
    tensors = [*python.input_names(spec), MOMENTS]
    arguments = ", ".join(f"float {name}" for name in ("eps", "batch"))
    own = {
        "runtime_class": "Channels",
        "statistics": CONSTRUCTOR.format(spec.scalars[0].default),
        "inputs": [each.name for each in spec.arguments],
        "eager_arguments": ", ".join([*tensors, "eps", "batch"]),
        "eager_lines": row_statements(spec, of.eager, Level.ELEMENT),
        "registration": [
            f'"{spec.name}", interface=3, eager=eager, channels={len(of.channels)},',
            f'forward="{", ".join(f"Tensor {name}" for name in tensors)}, {arguments}",',
            f'backward="{", ".join(f"Tensor {name}" for name in ("grad", *tensors))}, {arguments}",',
            "sources=Sources(CUDA_SOURCE, CPU_SOURCE),",
        ],
    }
    return fill(MODULE, {**context, **own}), row_text.digests(parts)
