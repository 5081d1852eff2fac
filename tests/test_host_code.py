"""Host code of the CUDA headers calls no function of the device: nvcc lets it end the process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fusegen.codegen.runtime_text import INCLUDE

OTHER_SIDE = ("cpu/", "system/", "compiled_call/")  # headers that nvcc never sees
OF_DEVICE = re.compile(r"\b(HOST_DEVICE|HOST_DEVICE_NOINLINE|__device__|__global__)\b")
OF_BOTH = re.compile(r"\b(ON_BOTH|__host__|constexpr)\b")
HEAD = re.compile(r"^(?:template <[^\n]*>\n)*([^\s#/}{][^;{}]*?)\b(\w+)\(([^;{}]*?)\)\s*\{", re.MULTILINE)
CALL = re.compile(r"(?<![.\w>:])(\w+)(?:<(?!<)[^;(){}]*>)?\(")  # and no launch by <<< and >>>
LAMBDA = re.compile(r"\bauto (\w+) = \[")
GIVEN = re.compile(r"(\w+)\s*(?:,|$)")
UNEVALUATED = re.compile(r"\b(?:decltype|sizeof)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


@dataclass(frozen=True)
class Function:
    """A function of a namespace: what stands before its name, its name, its arguments, and its body."""

    header: str
    before: str
    name: str
    arguments: str
    body: str

    @property
    def is_of_device(self) -> bool:
        """True if the device alone has it."""
        return OF_DEVICE.search(self.before) is not None and not OF_BOTH.search(self.before)

    @property
    def is_of_host(self) -> bool:
        """True if the host alone has it."""
        return not OF_DEVICE.search(self.before) and not OF_BOTH.search(self.before)

    @property
    def calls(self) -> set[str]:
        """The names that it calls, beside its own lambdas and functions that it is given."""
        return (
            set(CALL.findall(UNEVALUATED.sub("", self.body)))
            - set(LAMBDA.findall(self.body))
            - {*GIVEN.findall(self.arguments)}
        )


def body_from(text: str, begin: int) -> str:
    """The text up to the brace that ends what a brace began."""
    depth = 0
    for end in range(begin, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[begin:end]
    raise ValueError("a brace is not closed")


def functions(header: str, text: str) -> Iterator[Function]:
    """The functions that a header defines outside types and macros."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"#define(?:[^\n]*\\\n)*[^\n]*\n", "", text)
    for found in HEAD.finditer(text):
        yield Function(header, found[1], found[2], found[3], body_from(text, found.end() - 1))


def faults(headers: dict[str, str]) -> list[str]:
    """The calls of functions of the device in host code."""
    all_of = [each for header, text in headers.items() for each in functions(header, text)]
    device = {each.name for each in all_of if each.is_of_device}
    device -= {each.name for each in all_of if not each.is_of_device}
    host = [each for each in all_of if each.is_of_host]
    return [
        f"{each.header}: {each.name} calls {name}" for each in host for name in sorted(each.calls & device)
    ]


def headers() -> dict[str, str]:
    """The headers that nvcc reads."""
    paths = sorted(path for path in INCLUDE.rglob("*.*"))
    named = {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {name: text for name, text in named.items() if not name.startswith(OTHER_SIDE)}


def test_host_code_calls_no_function_of_the_device() -> None:
    assert faults(headers()) == []


def test_a_call_of_a_function_of_the_device_is_found() -> None:
    given = headers()
    given["row_channels.h"] = given["row_channels.h"].replace("ON_BOTH", "HOST_DEVICE")
    assert "cuda/feature_sums.cuh: add_all_parts calls columns_of" in faults(given)
    assert "row_channels.h: has_channels_in_order calls share_of_values" in faults(given)
