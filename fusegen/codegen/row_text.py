"""The text of the module of a spec with rows."""

from collections.abc import Mapping, Sequence

from fusegen.codegen import read_once, row_cpp, row_features, saved_values
from fusegen.codegen.emit.counts import TITLES
from fusegen.codegen.printers.row_eager import row_statements
from fusegen.codegen.render import Binding, module_class, python
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.digest import digest
from fusegen.core.folds import Level
from fusegen.core.manifest import Kernels
from fusegen.core.method import Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.errors import NoOlderBinding

RUNTIME_CLASSES = ("Rows", "Parts")
COUNTS = {0: "no", 1: "one"}
DIGITS = 16  # of a digest in hexadecimal
COMPUTED = ("rounded once, of sums in double", "compared in double")
WIDE = "values of rows float32 at least, rounded once"
FOUND = "Equal elements: the first of them is found, and NaN before all others; no gradient passes."
KEPT = ", with the dimensions of the row, of size 1"
ORDER = "Order: one after the other on the CPU; of a thread's eight, of a warp, a block, a row on CUDA."


def rendered(of: CompiledRows, binding: Binding) -> tuple[python.Context, Kernels]:
    """Return what the templates of a module take, and the digests of its kernels.

    Raises:
        NoOlderBinding: its kernels are to be reached by another binding than that of the stable ABI.
    """
    parts = row_cpp.parts(of)
    return context(of, binding, parts), digests(parts)


def context(of: CompiledRows, binding: Binding, parts: Mapping[str, str]) -> python.Context:
    """Return what the template of modules takes.

    Raises:
        NoOlderBinding: as for `rendered`.
    """
    if binding is not Binding.STABLE:
        raise NoOlderBinding(of.spec.span, name=of.spec.name, what="rows")
    spec = of.spec
    backward = of.schedules.backward.inputs
    return {
        **module_class.reduced(of, backward, _own_registration(of)),
        "counts": [_counted(of, which) for which in Pass],
        "gradient_arguments": ", ".join([*backward, *python.param_names(spec)]),
        "eager_lines": row_statements(spec, of.eager, of.row_results),
        "doc": _doc(of),
        "runtime_class": RUNTIME_CLASSES[of.in_parts],
        **parts,
    }


def sources(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the C++ of a module, by device, out of its parts."""
    return {
        d.name: parts[f"{d.name}_headers"] + parts["shared_source"] + parts[f"{d.name}_source"]
        for d in Device
    }


def digests(parts: Mapping[str, str]) -> Kernels:
    """Return the digests of the C++, which both passes have in common."""
    return {device: (digest(text, DIGITS),) * 2 for device, text in sources(parts).items()}


def _own_registration(of: CompiledRows) -> list[str]:
    """Return the lines that say what a row is, and which tensors may have one for all."""
    assert of.spec.over is not None
    over = of.spec.over.of_views
    own = [
        f"over={(over.first, over.count) if over.count else over.first}",
        *[f"results={len(of.spec.results)}"] * bool(of.spec.results),
        *[f"row_results={of.row_results}"] * of.is_mixed,
        *["keeps=True"] * of.spec.over.keeps,
        *[f"row_dtype=torch.{of.spec.over.dtype}"] * of.is_wide,
        *["elementwise=True"] * (not of.reduces),
        *[f'reduction="{"place" if of.finds else of.spec.reduction}"'] * (of.stored is not Level.ELEMENT),
        *[f"detached={(*python.input_names(of.spec),)}"] * of.finds,
        *["indices=1"] * bool(of.spec.indices),
        *(f"divisor={k}" for k, name in enumerate(python.input_names(of.spec)) if name == of.spec.divisor),
        *[f"groups={over.first - 1}"] * bool(of.spec.over.groups),
    ]
    names = [f'"{name}"' for name in row_features.summed(of)]
    several = ", ".join(names) + "," * (len(names) == 1)
    kind = "channels" if row_features.channels(of.spec) else "features"
    return [", ".join([*own, *[f"{kind}=({several})"] * bool(names)]) + ","]


def _doc(of: CompiledRows) -> list[str]:
    spec = of.spec
    first = spec.inputs[0].name
    row = _row(spec)
    dtypes = python.either(spec.dtypes)
    ignored = "ignore_index" if spec.reduction != "none" else "-100"
    indices = [
        f"Index: {each.name}, an int64 for each row of {each.index}; {ignored} picks none."
        for each in spec.indices
    ]
    if spec.over and spec.over.is_part:
        return _doc_of_parts(spec)
    computed = COMPUTED[of.finds] if of.reduces else "rounded once"
    computed = WIDE if of.is_wide else computed
    whose = f"whose rows are {row}" if of.reduces else "of any shape"
    equal = "a row do not depend on the other rows" if of.reduces else "an element do not depend on others"
    shape = f"Shape: {first} {whose}; the others broadcast to it."
    return [
        *([shape, _both_shapes(of)] if of.is_mixed else [f"{shape} {_returned(of)}"]),
        *indices,
        f"Dtype: {dtypes}, {computed}; others by PyTorch.",
        *[FOUND] * of.finds,
        *[ORDER] * (of.scans and not of.finds),
        f"Equal bits: those of {equal}, on their number or on the run.",
        "Raises: RuntimeError or TypeError for what eager refuses, before anything is launched.",
    ]


def _returned(of: CompiledRows) -> str:
    """Return the sentence on what a function of rows returns."""
    spec, is_row, kept = of.spec, of.stored is not Level.ELEMENT, KEPT * _keeps(of)
    if spec.results:
        how = f"one value a row each{kept}" if is_row else "each of that shape"
        return f"It returns {_listed(spec.results)}, {how}."
    if spec.reduction != "none":
        return f"The result is the {spec.reduction} of the values of rows."
    if of.finds:
        return "The result is an int64 a row."
    return f"The result is {'one value a row' if is_row else 'of the shape of the tensors'}{kept}."


def _both_shapes(of: CompiledRows) -> str:
    """Return the line on results of which some are values of rows."""
    results = of.spec.results
    of_rows = [results[k] for k in of.row_results]
    others = [name for name in results if name not in of_rows]
    value = f"one value a row{' each' * (len(of_rows) > 1)}{KEPT * _keeps(of)}"
    return f"Results: {_listed(others)} of that shape; {_listed(of_rows)}, {value}."


def _keeps(of: CompiledRows) -> bool:
    return bool(of.spec.over and of.spec.over.keeps)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _doc_of_parts(spec: Spec) -> list[str]:
    tensors = ", ".join(python.input_names(spec))
    result = f"It returns the {spec.reduction} of the values of elements."
    return [
        f"Shape: {tensors} of shapes that broadcast. {result}",
        "Reduction: mean, sum, batchmean (the sum divided by the first size), or none of it.",
        f"Dtype: {python.either(spec.dtypes)}, rounded once, of sums of more bits.",
        "Equal bits: elements are added in an order that their number decides.",
        "Raises: RuntimeError, TypeError or ValueError for what eager refuses.",
    ]


def _row(spec: Spec) -> str:
    assert spec.over is not None
    if spec.over.of_channel:
        return "all of a channel, dimension 1"
    if spec.over.groups:
        return f"a part of dimension {spec.over.first}, of {spec.over.groups}, and all behind it"
    if not spec.over.count:
        return (
            f"the dimensions from {spec.over.first} on" if spec.over.first != -1 else "the last dimension"
        )
    several = "s" * (spec.over.count > 1)
    return f"dimension{several} {' and '.join(map(str, spec.over.named))}"


def _counted(of: CompiledRows, which: Pass) -> str:
    loops = sum(not (phase.picks or phase.loads) for phase in of.schedules[which].phases)
    loops -= of.found_forward * (which is Pass.BACKWARD)
    loops -= which is Pass.FORWARD and of.stored is Level.ROW and not of.scans  # stored behind the loops
    loops -= of.scans and loops > 1  # what is scanned, or found, is stored in the loop that does
    if not of.reduces:
        return f"{TITLES[which]}: one loop."
    counted = f"{COUNTS.get(loops, loops)} loop{'s' * (loops > 1)}"
    once = ", on CUDA one" if which is Pass.FORWARD and read_once.headers(of, Device.CUDA) else ""
    saved = saved_values.loops_of_gradient(of) if which is Pass.BACKWARD else 0
    few = f", {COUNTS.get(saved, saved)} on CUDA by saved sums" * (0 < saved < loops)
    return f"{TITLES[which]}: {counted} over the elements of a row{once}{few}."
