"""The errors of a forward that torch.fx cannot trace, in words."""

KNOWN = {  # parts of what torch.fx and Python raise
    "object cannot be interpreted as an integer": "it counts by a size or a value of its inputs",
    "int() argument must be a string": "it counts by a size or a value of its inputs",
    "object does not support item assignment": "it assigns to items of a tensor",
    "cannot be used as inputs to control flow": "a condition in it depends on its inputs",
    "Proxy object cannot be iterated": "it loops over a tensor or a size of its inputs",
}
BY_VALUES = ("GuardOnDataDependentSymNode", "DataDependentOutputException")  # of tensors without any
PROXIES = ("InPlace", "Proxy", "symbolically traced")  # of which one stands in such a message


class Lost(Exception):
    """A clause that says what of a forward a graph of torch.fx does not keep."""


def in_words(error: BaseException) -> str:
    """Return the reason why a forward cannot be traced, a clause; empty where the forward itself raises."""
    said = str(error)
    if isinstance(error, Lost):
        return said
    if type(error).__name__ in BY_VALUES:
        return KNOWN["cannot be used as inputs to control flow"]
    of_a_proxy = any(word in said for word in PROXIES)
    return next((words for part, words in KNOWN.items() if of_a_proxy and part in said), "")


def in_a_line(error: BaseException) -> str:
    """Return an exception with the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return type(error).__name__ + f": {first}" * bool(first)
