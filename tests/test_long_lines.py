"""Lines of generated modules: none is longer than a window, and what is broken means the same."""

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import ROOT

from fusegen.codegen.render import long_lines

NAME = re.compile(r"[\w.]{55,}\(?$|^# ")  # a long name of a call, or the lines that tools read whole
LONG = " + ".join(f"value_{k}" for k in range(20))


def test_lines_of_modules_fit_but_for_long_names() -> None:
    for path in (ROOT / "generated").rglob("*.py"):
        lines = path.read_text(encoding="utf-8").split("\n")
        over = [line for line in lines if len(line) > long_lines.WIDTH and not NAME.search(line)]
        assert not over, path


@pytest.mark.parametrize(
    ("line", "first", "last"),
    [
        (
            f"HOST_DEVICE void f({'M some_input, ' * 9}M* out) {{",
            "M some_input,",
            "    M some_input, M some_input, M* out) {",
        ),
        (f"  FUSEGEN_MADE({'p.row = r.row; ' * 9}p.a = r.a)", "p.row = r.row;", "r.row; p.a = r.a)"),
        (f"  // {LONG}.", " +", "value_19."),
        (f"  return f({LONG});", "value_10", "value_19);"),
    ],
)
def test_cpp_ends_behind_an_argument(line: str, first: str, last: str) -> None:
    broken = long_lines.cpp(line).split("\n")
    assert max(map(len, broken)) <= long_lines.WIDTH
    assert broken[0].endswith(first)
    assert broken[-1].endswith(last)
    assert re.sub(r"\s+(// )?", " ", "\n".join(broken)) == re.sub(r"\s+(// )?", " ", line)


def test_docstrings_comments_and_strings_of_python() -> None:
    text = "\n" * long_lines.HEAD + (
        f'def f():\n    """Return it.\n\n    {"word " * 30}\n    """\n    # {"word " * 30}\n'
        f'    return g(a, words="{", ".join(["Tensor x"] * 20)}", b=1)\n'
    )
    broken = long_lines.python(text)
    assert max(map(len, broken.split("\n"))) <= long_lines.WIDTH
    one, other = (ast.parse(each).body[0] for each in (text, broken))
    assert isinstance(one, ast.FunctionDef)
    assert isinstance(other, ast.FunctionDef)
    assert ast.dump(one.body[1]) == ast.dump(other.body[1])
    assert (ast.get_docstring(one) or "").split() == (ast.get_docstring(other) or "").split()


def test_strings_of_cpp_stay() -> None:
    text = f'\n\nSOURCE = r"""\n{"x" * 60} {"y" * 70}\n"""\n'
    assert long_lines.python(text) == text


NAMES = st.from_regex("v[a-z]{1,11}", fullmatch=True)
ARGUMENTS = st.one_of(NAMES, NAMES.map('"{} | None"'.format), st.tuples(NAMES, NAMES).map(" + ".join))
CALLS = st.lists(ARGUMENTS, min_size=8, max_size=30).map(", ".join)


@pytest.mark.full
@given(st.lists(CALLS, min_size=1, max_size=3), NAMES)
def test_broken_python_means_the_same(calls: list[str], name: str) -> None:
    inner = ", ".join(f"g({each})" for each in calls)
    text = f"\n\n_{name} = f_({inner}) * f_({inner})\n"
    broken = long_lines.python(text)
    assert ast.dump(ast.parse(broken)) == ast.dump(ast.parse(text))
    assert max(map(len, broken.split("\n"))) <= long_lines.WIDTH
