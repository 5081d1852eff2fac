"""The C++ of a module: what the printers write of its functions, types, launches and methods."""

from textwrap import wrap

from fusegen.codegen.emit import includes, launch_tables
from fusegen.codegen.emit.comments import comments
from fusegen.codegen.emit.curve_kernels import curves_printed, kernels, taken
from fusegen.codegen.emit.needed_kernels import Emitted, emitted
from fusegen.codegen.printed import FUNCTORS, Binding, Cpp, LaunchPlan, Printed, Sources
from fusegen.codegen.printers.cpp import CppPrinter, uniform
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import definitions, functions
from fusegen.codegen.printers.literals import literal
from fusegen.codegen.printers.methods import method_types
from fusegen.compiler.pipeline import Compiled
from fusegen.core import budget
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.ir import Kernel, Math
from fusegen.core.launch import BROADCAST, Launches, Table, class_of, shipped, special_rows
from fusegen.core.method import Arithmetic, Pass, Variant
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.lower import uniforms
from fusegen.schedule.cost import Cost, cost_of
from fusegen.schedule.forms import Form, Part

IF_FLOAT = "sizeof(M) == 4"
CONDITIONS = {
    Variant.SINGLE_WORD: f"sizeof(T) == 2 && {IF_FLOAT}",
    Variant.SINGLE_RESULT: f"sizeof(T) == 4 && {IF_FLOAT}",
    Variant.SERIES: "sizeof(T) == 2 && sizeof(M) == 8",
}
DEFAULT = "ByWidth<Formula<float>, Formula<float>, Formula<double>>"  # methods of call.h, not named again
WIDTH = 120  # of a line


class Emission:
    """The C++ of a spec, for a binding and a launch table."""

    def __init__(self, of: Compiled, binding: Binding, launches: Table) -> None:
        self.of, self.spec, self.launches = of, of.spec, launches
        stable = binding is Binding.STABLE
        self.forms = [form for form in of.forms if stable or not form.needs_stable_abi]
        self.kernels = {which: {d: emitted(of, which, d) for d in Device} for which in Pass}
        own = {
            which: {d: each.kernels for d, each in found.items()} for which, found in self.kernels.items()
        }
        self.written = {which: functions(own[which], _opens(of, which)) for which in Pass}
        self.comments = comments(of, self.written)
        self.by_curves, self.curves = curves_printed(of)
        host = [let for program in of.programs for let in uniforms(program)]
        self.uniforms = {let.name: uniform(let) for let in host}
        read = {name for kernel in called(of, Device.CUDA) for name in kernel.params}
        self.scalars = tuple(n for n in (*of.declared.composed.params, *self.uniforms) if n in read)

    def sources(self) -> Sources:
        """Return the C++ of the module."""
        shared = [
            Printed(FUNCTORS[which], written.shared, self.comments[which].functions[None])
            for which, written in self.written.items()
            if written.shared
        ]
        given = [param.name for param in self.spec.scalars]
        devices = {device: self.cpp(device) for device in Device}
        return Sources(self.scalars, given, tuple(self.uniforms.values()), shared, devices)

    def cpp(self, device: Device) -> Cpp:
        """Return the C++ of a device."""
        own = [form for form in self.forms if device.family in form.families]
        loops = [form for form in own if not form.rows]
        beside = [form for form in loops if not form.base]
        plans = (
            {FUNCTORS[p]: launch_plans(self.of, p, self.launches) for p in Pass} if device.launched else {}
        )
        tables, taken = launch_tables.members(plans)
        members = {p: [*taken.get(FUNCTORS[p], ()), *self.members(p, device)] for p in Pass}
        named = "Formula" + "".join(line for lines in members.values() for line in lines)
        further = [f"cuda/plain_double_{plain_double_bits(self.of)}.cuh"] * ("PlainDouble" in named)
        further += [device.broadcast] * (len(self.spec.tensors) > 1)
        found = includes.headers(device, named, further, headers(called(self.of, device)))
        from_output = "true" if self.of.from_output else "false"
        return Cpp(
            [*found, *(form.header for form in beside)],
            tables,
            [
                *(self.curves if device.has_curves else ()),
                *(self.kernel(which, device, members[which]) for which in Pass),
                *(self.part(part) for form in beside for part in form.parts(self.of.planned)),
            ],
            [form.macro.format(name=self.spec.name, from_output=from_output) for form in loops],
            "".join(self.library(form) for form in own if form.rows),
        )

    def kernel(self, which: Pass, device: Device, members: list[str]) -> Printed:
        """Return the type of a pass on a device, with its functions."""
        of, functor = self.of, FUNCTORS[which]
        own, above, written = self.kernels[which][device], self.comments[which], self.written[which]
        curves = self.by_curves.get(which) if device.has_curves else None
        opens = _opens(of, which) if device.fast_types else ()
        named = [text for each in own.named.values() for text in definitions((each,), opens)]
        found = (*written.own[device], *named, *([curves.definition] if curves else []))
        inputs = len(of.algebra.derivations[which].program.inputs)
        outputs = len({*of.outputs}) if which is Pass.BACKWARD else 1
        base = next(form.base for form in self.forms if form.base)
        head = f"{functor} : {base}<{self.arguments(inputs, outputs)}>"
        struct = _struct(head, members, _element(own, written.float_call[device]))
        return Printed(functor, found, above.functions[device], struct, above.kernels[device])

    def members(self, which: Pass, device: Device) -> list[str]:
        """Return the members of a type but for its launches."""
        methods, lines = method_types(self.of.plan.of(which, device), device), _elements(self.spec)
        if "AtDefaults" in methods:
            declared = ", ".join(literal(param.default, Math.DOUBLE) for param in self.spec.scalars)
            lines += [f"static constexpr double DEFAULTS[] = {{{declared}}}"]
        if (cubic := self.of.facts[which].grid) and "PiecewiseUniform" in methods:
            grid = ", ".join(
                f"{{1 / {1 / side.step}f, {side.last}}}" for side in (cubic.above, cubic.below)
            )
            lines += [f"static constexpr UniformGrid GRID = {{{grid}}}"]
        if device.launched or methods != DEFAULT:
            lines += [f"using Methods = {methods}"]
        curves = self.by_curves.get(which) if device.has_curves else None
        return [*lines, *([curves.struct] if curves else [])]

    def arguments(self, inputs: int, outputs: int) -> str:
        """Return the arguments of a type's base."""
        count = len(self.spec.scalars)
        scalars = f", {'Scalars' if self.scalars else 'NoParams'}, {count}" if count else ""
        return f"{inputs}, {outputs}{scalars}"

    def part(self, of: Part) -> Printed:
        """Return the type of a kernel that a form has of its own."""
        head = f"{of.functor} : Elementwise<{self.arguments(len(of.kernels[0].inputs), 1)}>"
        struct = _struct(head, _elements(self.spec), CppPrinter(of.kernels[0]).element())
        return Printed(of.functor, definitions(of.kernels, ()), (of.note,), struct)

    def library(self, form: Form) -> str:
        """Return the C++ of a form that is a library behind that of the kernels."""
        widths = sorted({ELEMENTS[dtype].bits for dtype in self.spec.dtypes} - {64})
        name = f"{self.spec.name}_{Pass.FORWARD.value}"
        rows = {bits: special_rows(self.launches, name, form.rows, bits) for bits in widths}
        tables, named = launch_tables.library(form.rows, rows)
        notes = [f"// {line}" for line in wrap(form.sentence(self.spec), WIDTH - len("// "))]
        rows_text = [t.replace("Launch", "fusegen::Launch").replace("ANY", "fusegen::ANY") for t in tables]
        lines = [includes.INCLUDE.format(form.header).rstrip(), *notes, *rows_text]
        return "\n".join([*lines, form.macro.format(name=self.spec.name, tables=", ".join(named)), ""])


def called(of: Compiled, device: Device) -> list[Kernel]:
    """Return the kernels of a device that a module has."""
    found = [kernel for which in Pass for kernel in emitted(of, which, device)]
    return [*found, *(kernels(of) if device.has_curves else ())]


def plain_double_bits(of: Compiled) -> str:
    """Return the number of right bits in single-word double, if a kernel on CUDA takes it."""
    taken = Arithmetic.PLAIN_DOUBLE
    passes = [which for which in Pass if taken in of.plan.arithmetics(which, Device.CUDA)]
    errors = [of.facts[which].estimates[Device.CUDA].double or 0.0 for which in passes]
    return ("39" if max(errors) <= budget.BITS_39_ENOUGH else "44") if passes else ""


def element_costs(of: Compiled, which: Pass) -> dict[int, Cost]:
    """Return the cost of an element of a CUDA kernel, by its width in bits."""
    found = {v: of.kernels[which, Device.CUDA, v] for v in Variant if (which, Device.CUDA, v) in of.kernels}
    by_curves = taken(of, which)
    methods = {ELEMENTS[dtype].bits: method for dtype, method in of.plan.of(which, Device.CUDA).items()}
    kernel = by_curves.kernel if by_curves else None
    return {bits: cost_of(method, bits, found, kernel) for bits, method in sorted(methods.items())}


def launch_plans(of: Compiled, which: Pass, table: Table) -> tuple[LaunchPlan, ...]:
    """Return the launch plans of a CUDA kernel for dense tensors, one for each width of elements."""
    name, found = f"{of.spec.name}_{which.value}", []
    for bits, cost in element_costs(of, which).items():
        rows = class_of(cost.launch_class, len(of.programs[which].inputs))
        several = _own_broadcast(table, name, bits) if len(of.spec.tensors) > 1 else {}
        own = table.chosen(name, rows, bits)
        found.append(LaunchPlan(bits, cost.instructions, cost.launch_class.value, rows, own, several))
    return tuple(found)


def _own_broadcast(table: Table, kernel: str, bits: int) -> dict[int, Launches]:
    """The rows for tensors that are not all dense in one layout; none where they are the runtime's."""
    rows = special_rows(table, kernel, BROADCAST, bits)
    return {} if rows == special_rows(shipped(), kernel, BROADCAST, bits) else rows


def _opens(of: Compiled, which: Pass) -> list[Math]:
    fast = any(Arithmetic.FAST_FLOAT in of.plan.arithmetics(each, Device.CUDA) for each in Pass)
    plain = Arithmetic.PLAIN_DOUBLE in of.plan.arithmetics(which, Device.CUDA)
    opens = {Math.FLOAT: fast, Math.DOUBLE: plain}
    return [kind for kind in Math if opens[kind]]


def _element(of: Emitted, float_call: str) -> str:
    """Return the statement that calls the function of a kernel, or one of several by their conditions."""
    others = {CONDITIONS[variant]: CppPrinter(own).element() for variant, own in of.named.items()}
    others |= {IF_FLOAT: float_call} if float_call else {}
    chosen = [f"if constexpr ({condition}) {call}" for condition, call in others.items()]
    return f";\n{'':18}else ".join([*chosen, CppPrinter(of.kernels[0]).element()])


def _struct(head: str, members: list[str], element: str) -> str:
    """Return the type of a kernel, on one line if that is all that it has."""
    call = f"FUSEGEN_ELEMENT({element})"
    line = f"struct {head} {{ {call} }};"
    if not members and len(line) <= WIDTH:
        return line
    return "\n".join([f"struct {head} {{", *(f"  {member};" for member in members), f"  {call}", "};"])


def _elements(spec: Spec) -> list[str]:
    if set(spec.dtypes) == ELEMENTS.keys():
        return []
    return [f"using Elements = Dtypes<{', '.join(dtype.upper() for dtype in spec.dtypes)}>"]
