"""The errors of a forward that cannot be captured, in words."""

CONDITION = "a condition in it depends on its inputs"
COUNTS = "it counts by a size or a value of its inputs"
BY_VALUES = ("GuardOnDataDependentSymNode", "DataDependentOutputException")  # of tensors without any


class Lost(BaseException):
    """A clause that says what of a forward its graph does not keep.

    A forward that catches exceptions does not catch it, as it would then take another branch.
    """


def in_words(error: BaseException) -> str:
    """Return the reason why a forward has no graph, a clause; empty where the forward itself raises."""
    if isinstance(error, Lost):
        return str(error)
    return CONDITION if type(error).__name__ in BY_VALUES else ""


def in_a_line(error: BaseException) -> str:
    """Return an exception with the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return type(error).__name__ + f": {first.replace('FakeTensor', 'Tensor')}" * bool(first)
