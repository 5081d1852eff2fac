"""A program with a pooling as Python on PyTorch's own operations."""

from fusegen.codegen.printers.notation import term
from fusegen.codegen.printers.pytorch import Printer
from fusegen.core.ops.row import ATOM, UNARY
from fusegen.core.poolings import FLAGS, is_pooling
from fusegen.core.term import Program, SpecCall


def window_statements(program: Program) -> tuple[str, ...]:
    """Return the lines of a function body that returns the value of a program of eager's operations."""
    printer = _WindowPrinter({*program.inputs})
    return (*printer.steps(program), f"return {printer.text(program.results[0])}")


def arguments(call: SpecCall) -> dict[str, str]:
    """Return the arguments of a pooling besides its tensor, in Python."""
    given = {key: term(value) for key, value in call.keywords}
    return given | {key: str(given[key] == "1") for key in FLAGS if given.get(key) in ("0", "1")}


class _WindowPrinter(Printer):
    """Prints terms of tensors, of which poolings are functions of torch.nn.functional."""

    def fused(self, call: SpecCall) -> tuple[str, float]:
        """Return a pooling, or a call of PyTorch's function.

        The smallest element is the largest of the negative ones, and a sum an average with the divisor 1,
        which PyTorch has for two and three dimensions.
        """
        if not is_pooling(call):
            return super().fused(call)
        kind, rank = call.spec.split("_pool")
        given = arguments(call)
        x = self.tensor(call.args[0], call)
        if kind == "min":
            return f"-{_called(f'max_pool{rank}', f'-({x})', given)}", UNARY
        if kind != "sum":
            return _called(call.spec, x, given), ATOM
        given["divisor_override"] = "1"
        if rank != "1d":
            return _called(f"avg_pool{rank}", x, given), ATOM
        if given.get("stride", "").isidentifier():  # which may be None
            given["stride"] += f" or {given['kernel_size']}"
        flat = {key: f"({ROW[key]}, {text.strip('(),')})" for key, text in given.items() if key in ROW}
        return f"{_called('avg_pool2d', f'({x}).unsqueeze(-2)', given | flat)}.squeeze(-2)", ATOM


ROW = {"kernel_size": "1", "stride": "1", "padding": "0"}


def _called(function: str, x: str, given: dict[str, str]) -> str:
    return f"nn.functional.{function}({', '.join([x, *(f'{key}={text}' for key, text in given.items())])})"
