"""The effect of CUDA's autocast on the dtype of a program of PyTorch's operations."""

from fusegen.core.term import Apply, Program, SpecCall, walk

FLOAT32 = {  # what CUDA's autocast computes in float32, by our names
    "exp", "expm1", "log", "log1p", "log2", "pow", "cube", "square", "reciprocal", "rsqrt", "softplus",
    "torch.nn.functional.softplus",
}  # fmt: skip


def autocasts(program: Program) -> bool:
    """Return True if CUDA's autocast computes a part of the program in float32, and hence gives float32."""
    terms = [*(let.term for let in program.lets), *program.results]
    parts = [part for term in terms for part in walk(term)]
    used = {part.op for part in parts if isinstance(part, Apply)}
    return bool(FLOAT32 & (used | {part.spec for part in parts if isinstance(part, SpecCall)}))
