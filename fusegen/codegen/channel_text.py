"""The text of the module of a spec whose rows are channels: that of rows, with statistics in its class."""

from fusegen.codegen import channel_cpp, row_text
from fusegen.codegen.printers.row_eager import row_statements
from fusegen.codegen.render import Binding, python
from fusegen.codegen.render.forward_arguments import local_names, prepared
from fusegen.codegen.render.module_class import place
from fusegen.compiler.channel_kernels import CompiledChannels
from fusegen.core.constructor import Layer
from fusegen.core.held_layers import read_as
from fusegen.core.manifest import Kernels
from fusegen.errors import NotStatistics

CONSTRUCTOR = (
    "num_features, eps={0!r}, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None"
)
MOMENTS = "moments"  # the tensor behind those of channels


def rendered(of: CompiledChannels, binding: Binding) -> tuple[python.Context, Kernels]:
    """Return what the templates of a module take, and the digests of its kernels.

    Raises:
        NoOlderBinding: its kernels are to be reached by another binding than that of the stable ABI.
        NotStatistics: its layer has other arguments than torch.nn's.
    """
    spec, parts = of.spec, channel_cpp.parts(of)
    layer = _layer(of)
    context = row_text.context(of, binding, parts)
    tensors, scalars = [*python.input_names(spec), MOMENTS], [*python.param_names(spec), "batch"]
    arguments = ", ".join(f"float {name}" for name in scalars)
    own = {
        "runtime_class": "Channels",
        "statistics": "" if layer else CONSTRUCTOR.format(spec.scalars[0].default),
        "layer_call": _call(of, layer) if layer else "",
        "inputs": [each.name for each in spec.arguments],
        "eager_arguments": ", ".join([*tensors, *scalars]),
        "eager_lines": row_statements(spec, of.eager, ()),
        "registration": [
            f'"{spec.name}", interface=3, eager=eager, channels={len(of.channels)},',
            f'forward="{", ".join(f"Tensor {name}" for name in tensors)}, {arguments}",',
            f'backward="{", ".join(f"Tensor {name}" for name in ("grad", *tensors))}, {arguments}",',
            "sources=Sources(CUDA_SOURCE, CPU_SOURCE),",
        ],
    }
    return {**context, **own}, row_text.digests(parts)


def _layer(of: CompiledChannels) -> Layer | None:
    """Return the batch norm of torch.nn whose parts formulas read; None where the module's class is one.

    Raises:
        NotStatistics: formulas read other parts, or the class is one and has layers or scalars of its own.
    """
    spec = of.spec
    held = [item for item in spec.layers if isinstance(item, Layer) and not item.runs]
    for layer in held:
        names = tuple(read_as(layer.attribute, part) for part in ("weight", "bias"))
        is_norm = layer.kind.startswith("BatchNorm") and of.channels == names
        if is_norm and read_as(layer.attribute, "eps") in python.param_names(spec):
            return layer
    ahead = spec.producers or spec.front
    if python.param_names(spec) != ["eps"] or len(of.channels) != 2 or ahead or held:
        problem = "the scalar eps and two tensors along dimension 1, weight and bias, are what a layer has"
        if ahead or held:
            problem = "behind layers formulas read weight, bias and eps of a BatchNorm, which has them"
        raise NotStatistics(spec.span, problem=problem)
    return None


def _call(of: CompiledChannels, layer: Layer) -> str:
    local = local_names(of.spec)
    elements = [each for each in of.spec.tensors if each.name not in of.channels]
    tensors = [prepared(each, of.spec, "" if each.name in local else "self.") for each in elements]
    scalars = [place(of.spec, scalar.name) for scalar in of.spec.scalars]
    return f"KERNELS.layer({', '.join([f'self.{layer.attribute}', *tensors, *scalars])})"
