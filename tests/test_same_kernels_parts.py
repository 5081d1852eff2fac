"""The parts of the comparison of kernels: texts, PTX without names, inputs, digests of results."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ROOT
from kernels import INTEGERS

from benchmarks.same_kernels import ptx, results, text
from benchmarks.same_kernels.__main__ import _names
from benchmarks.same_kernels.branches import without_untaken
from benchmarks.same_kernels.renames import NONE
from benchmarks.same_kernels.tokens import tokens, without_residents, without_uncalled
from benchmarks.same_kernels.verdict import by_names
from benchmarks.same_kernels.versions import Pair, files_of, module, workers
from fusegen.core.header_files import without_comments

# --- texts ----------------------------------------------------------------------------------------------


def test_comments_and_nothing_else_are_left_out() -> None:
    bare = without_comments('a; // b\n\n/* c\n */ d("// e", \'"\');  // f \\\n g\nh /= 2;\n')
    assert bare == 'a;\n  d("// e", \'"\');\nh /= 2;'


def test_the_host_part_lacks_what_is_compiled_for_the_device_alone() -> None:
    both = "template <class T>\n__host__ __device__ T both(T x) { return x; }"
    host = 'void host() { say("__device__ {"); }'
    device = [
        "template <class T>\n__global__ void __launch_bounds__(8) kernel(T* x) { if (x) { x[0] = 1; } }",
        "#if SMALL\n__device__ float table[8];\n#endif",
        'struct S {\n  int k;\n  INLINE void f() const { g("}"); }\n};',
    ]
    define = "#define INLINE __device__ inline"
    macros = [
        "#define ELEMENT(...) \\\n  INLINE void f() { \\\n    __VA_ARGS__; \\\n  }",
        "#define LAUNCH(NAME) int NAME() { return 1; }",
    ]
    calls = ["struct T {", "int k;", "ELEMENT(f(x); g(y))", "};", "LAUNCH(h)"]
    found = text.host_part("\n".join([define, *macros, host, *device, *calls, both, "int last;"]))
    kept = [
        define,
        "#define ELEMENT(...) \\",
        macros[1],
        host,
        "#if SMALL",
        "#endif",
        "struct S {",
        "int k;",
        "};",
        *(line for line in calls if "ELEMENT" not in line),
        *both.split("\n"),
        "int last;",
    ]
    assert [line.strip() for line in found.splitlines() if line.strip()] == kept


def test_the_python_of_cuda_is_told_apart() -> None:
    body = (
        'def f(x):\n    """Doc."""\n    if x.is_cuda and x.numel() >= {}:\n        return Masked.apply(x)\n'
    )
    rest = "    return x.masked_fill_({})\nLARGE = {}\n"
    whole = body + rest
    texts = [text.python_of_cuda(whole.format(*holes)) for holes in ((1, 2, 3), (1, 9, 3))]
    assert texts[0] == texts[1]
    for holes in ((9, 2, 3), (1, 2, 9)):
        assert text.python_of_cuda(whole.format(*holes)) != texts[0]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("// of the host", "// of all", ()),
        ("void kernel() { }", "void kernel() { f(); }", ()),
        ("int launch;", "long launch;", ("launch code",)),
        ("int layout;", "long layout;", ("binding",)),
        ("#define HERE", "#define THERE", ("binding",)),
        ("-O3", "-O2", ("flags",)),
        ("numel() > 1", "numel() > 2", ("Python of CUDA",)),
        ("False", "True", ("build",)),
    ],
)
def test_what_moved_on_the_host_of_cuda_is_named(old: str, new: str, named: tuple[str, ...]) -> None:
    layout, code = "int layout;  // of the host", "int launch;\n__global__ void kernel() { }"

    def host(change: Callable[[str], str]) -> dict[str, str]:
        module = change("if x.is_cuda and x.numel() > 1:\n    f(x)\n")
        lists = {
            "cuda_sources": [code],
            "cpp_sources": ["#define HERE", layout],
            "extra_cuda_cflags": ["-O3"],
            "with_pytorch_error_handling": ["False"],
        }
        recipe = {key: list(map(change, texts)) for key, texts in lists.items()}
        return text.host_texts(module, {"forward": recipe})

    assert text.moved(host(str), host(lambda one: one.replace(old, new))) == named


def test_docstrings_and_cpp_are_no_python() -> None:
    source = '"""A."""\nCPU_SOURCE = "int x;"\ndef f():\n    """B."""\n    return 1  # c\n'
    same = '"""B."""\nCPU_SOURCE = "int y;"\ndef f():\n    """D."""\n    return 1\n'
    assert text.python_of(source) == text.python_of(same)
    assert text.python_of(source) != text.python_of(source.replace("return 1", "return 2"))


# --- PTX ------------------------------------------------------------------------------------------------

PTX = """.version 9.0
.const .align 4 .b8 coefficients[8] = {0, 0, 128, 63, 0, 0, 0, 64};
.func (.param .b32 func_retval0) _Z4halfi(
	.param .b32 _Z4halfi_param_0
)
{
	ld.const.f32 %f1, [coefficients];
	ret;
}
.entry _ZN43_GLOBAL__N__0123abcd_10_kernels_cu_0123abcd3runEPf(
	.param .u64 _ZN43_GLOBAL__N__0123abcd_10_kernels_cu_0123abcd3runEPf_param_0
)
{
	.shared .align 4 .b8 _ZZN43_GLOBAL__N__0123abcd_10_kernels_cu_0123abcd3runEPfE1s[128];
	.loc 1 7 3
	ld.param.u64 %rd1, [_ZN43_GLOBAL__N__0123abcd_10_kernels_cu_0123abcd3runEPf_param_0];
	@%p1 bra $L__BB1_2; // a comment
	call.uni (retval0), _Z4halfi, (param0);
$L__BB1_2:
	ret;
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3runEPf", "4walkEPf"),
        ("0123abcd", "fedc0123"),
        ("_Z4halfi", "_Z5thirdi"),
        (".loc 1 7 3", ".loc 1 8 3"),
        ("// a comment", ""),
        ("$L__BB1_2", "$L__BB4_2"),
    ],
)
def test_names_and_lines_of_ptx_do_not_count(old: str, new: str) -> None:
    one, other = ptx.kernels(PTX), ptx.kernels(PTX.replace(old, new))
    assert list(one.values()) == list(other.values())
    assert ptx.differing(one, other) == 0
    assert list(one) == ["_ZN3runEPf"]


def test_last_parameters_that_nothing_reads_do_not_count() -> None:
    one = "_ZN43_GLOBAL__N__0123abcd_10_kernels_cu_0123abcd3runEPf_param_0"
    first, last = f"\t.param .u64 {one}\n", f",\n\t.param .align 1 .b8 {one[:-1]}1[1]\n"
    longer = PTX.replace(first, first.rstrip("\n") + last)
    assert longer != PTX
    assert ptx.differing(ptx.kernels(PTX), ptx.kernels(longer)) == 0
    read = longer.replace("ret;\n}\n", f"ld.param.u8 %r1, [{one[:-1]}1];\n\tret;\n}}\n")
    assert ptx.differing(ptx.kernels(PTX), ptx.kernels(read)) == 1
    before = PTX.replace(first, f"\t.param .u32 {one[:-1]}1,\n{first}")
    assert ptx.differing(ptx.kernels(PTX), ptx.kernels(before)) == 1


def test_the_places_of_assertions_do_not_count() -> None:
    text = "int a;\n  assert(a >= 0);\n#define M \\\n  assert(x)\n"
    made = ptx.numbered_alike(text)
    assert made == 'int a;\n#line 1 "kernels.cu"\n  assert(a >= 0);\n#define M \\\n  assert(x)\n'


@pytest.mark.parametrize(
    ("old", "new"),
    [("128, 63", "129, 63"), ("[coefficients]", "[coefficients+4]"), ("$L__BB1_2;", "$L__BB1_3;")],
)
def test_what_a_kernel_computes_and_calls_counts(old: str, new: str) -> None:
    assert ptx.differing(ptx.kernels(PTX), ptx.kernels(PTX.replace(old, new))) == 1


def test_kernels_of_the_same_name_have_to_be_the_same() -> None:
    assert ptx.differing({"a": "1", "b": "2"}, {"a": "2", "b": "1"}) == 2
    assert ptx.differing({"a": "1", "b": "2"}, {"c": "2", "d": "1"}) == 0
    assert ptx.differing({"a": "1", "b": "1"}, {"a": "1"}) == 1
    assert ptx.differing({"a": "1"}, {"a": "1", "c": "1"}) == 1


# --- inputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "count", "exponents"),
    [(torch.float16, 2**16, 40), (torch.float32, 2**20, 254), (torch.float64, 2**20, 2046)],
)
def test_patterns_are_spread_over_all(dtype: torch.dtype, count: int, exponents: int) -> None:
    found = results.patterns(dtype)
    bits = found.view(INTEGERS[dtype])
    assert len(set(bits.tolist())) == len(bits) == count
    numbers = found[found.isfinite() & (found != 0)].double()
    assert len(set(numbers.frexp().exponent.tolist())) >= exponents
    assert 0.4 < float((numbers < 0).double().mean()) < 0.6
    assert len(set((bits & 0xFFF).tolist())) == 2**12  # the last digits vary, too


def test_tensors_of_a_function_meet_in_many_ways_and_the_same_each_time() -> None:
    found = results.points(torch.float32, 2)
    assert torch.equal(
        found.view(torch.int32), results.points.__wrapped__(torch.float32, 2).view(torch.int32)
    )
    pairs = found[:, : len(results.SPECIALS) ** 2].T.tolist()
    assert len(set(map(str, pairs))) == len(results.SPECIALS) ** 2
    both = found.isfinite().all(0)
    assert not torch.equal(found[0, both], found[1, both])
    assert found.shape == (2, 2**20 + 2**16)


def test_layouts_are_dense_strided_and_off_the_alignment() -> None:
    [row] = results.points(torch.float16, 1)
    dense, strided, off = (results.LAYOUTS[name](row) for name in results.LAYOUTS)
    assert dense.is_contiguous()
    assert (strided.stride(), strided.shape) == ((2 * results.WIDTH, 2), dense.shape)
    assert torch.equal(strided.view(torch.int16), dense.view(torch.int16))
    assert (off.data_ptr() % 16, len(off)) == ((row.data_ptr() + 6) % 16, len(row) - 3)


def test_a_digest_tells_all_but_one_nan_from_another() -> None:
    nans = torch.tensor([0x7FC00000, -1], dtype=torch.int32).view(torch.float32)
    assert results.digest(nans) == results.digest(torch.full((2,), math.nan))
    others = (torch.tensor([0.0]), torch.tensor([-0.0]), torch.tensor([[0.0]]), torch.zeros(1).double())
    assert len({results.digest(one) for one in others}) == len(others)


def test_scalars_that_eager_refuses_are_left_out() -> None:
    [row] = results.points(torch.float16, 1)
    celu = SimpleNamespace(eager=torch.nn.functional.celu)
    taken = {
        alpha: results.eager_takes(celu, {"alpha": alpha}, row[None]) for alpha in map(Fraction, (0, 1, -2))
    }
    assert taken == {0: False, 1: True, -2: True}


def test_modules_of_subfolders_are_compared_under_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    known = _names(())
    assert {"relu", "kernelbench/matrix_relu"} <= set(known)
    assert not [name for name in known if "_runtime" in name]
    paths = [ROOT / "generated" / f"{name}.py" for name in ("relu", "kernelbench/matrix_relu")]
    with ExitStack() as stack:
        both = workers()
        for worker in both:
            stack.enter_context(worker)
        pairs = [Pair(path, path, both) for path in paths]
        assert [pair.name for pair in pairs] == ["relu", "kernelbench/matrix_relu"]
        assert pairs[0].runtimes == pairs[1].runtimes
        assert "activation.py" in pairs[1].runtimes[0]


T = "template <typename M> M"
USED = f"{T} used(M x) {{ return x; }} float f() {{ return used(1.0f); }}"
UNCALLED = {  # added to a text, and whether code may be made of it
    "a template that nothing names": (f"{T} other(M x) {{ return x + M(1); }}", False),
    "two of a name": (f"{T} o(M x) {{ return o(x, x); }} {T} o(M x, M y) {{ return x; }}", False),
    "a function": ("float other(float x) { return x; }", True),
    "a template that is called": (f"{T} o(M x) {{ return x; }} float g() {{ return o(2.0f); }}", True),
    "a declaration": (f"{T} other(M x);", False),
    "an overload": (f"{T} used(M* x) {{ return *x; }}", True),
    "a struct": ("template <typename M> struct Other : Some<M> { M x; };", False),
    "a struct that is named": ("template <class M> struct O { M x; }; O<float> g();", True),
    "a struct of another template": ("template <> struct std::hash<float> { int x; };", True),
    "a class": ("template <typename M> class Other { M x; };", True),
    "one that an unnamed one names": (f"{T} p(M x) {{ return x; }} {T} o(M x) {{ return p(x); }}", False),
    "one of some type": ("template <class P> constexpr bool O<S<P>> = true;", True),
    "a constant": ("template <class P, class Q> constexpr int O = P::q > 1 ? Q::q : 2;", False),
    "one that is read": ("template <class P> constexpr int O = 1; int g() { return O<int>; }", True),
    "an instantiation": (f"{T} o(M x) {{ return x; }} template float o(float x);", True),
    "a variable of a type": ("struct S { S() { typename M::template Held<int> o(3); } };", True),
    "a comparison": ("template <int N, bool B = (N < 3)> struct O { int x; };", True),
    "a specialization": ("template <> float o(float x) { return x; }", True),
    "a member": ("template <class F> void S<F>::o() { f(); }", True),
    "a name that C++ looks up": ("template <class F> F* begin(F x) { return x.p; }", True),
    "a kernel": (
        "template <class F> __global__ void __launch_bounds__(N(2)) o(int n) {\n#pragma unroll\n f(n); }",
        False,
    ),
    "a condition of the preprocessor": (f"{T} o(M x) {{\n#if A\n}}\n#endif\n return x; }}", True),
}


@pytest.mark.parametrize("which", UNCALLED)
def test_templates_that_nothing_names_make_no_code(which: str) -> None:
    added, counts = UNCALLED[which]
    assert (without_uncalled(tokens(f"{added}\n{USED}")) != tokens(USED)) is counts


DEFAULTS = "struct Rows { static constexpr bool OFF = false; };"
TWICE = f"{DEFAULTS} {DEFAULTS}"
LATER = (  # ways in which another struct may have the constant
    "static constexpr bool OFF = true;",
    "static constexpr bool OFF{true};",
    "constexpr static bool OFF = g();",
    "static inline constexpr bool OFF = true;",
    "static const bool OFF = true;",
    "static constexpr bool B = false, OFF = true;",
    "static bool OFF();",
    "enum : bool { OFF = true };",
    "FLAG(OFF);",
    "#define AGAIN static constexpr bool OFF = true;",
)
BRANCHES = {  # of a function, and what is left of it
    "a block": ("if constexpr (F::OFF) { f(); if (a) g(); } h();", "h();"),
    "a statement": ("if constexpr (F::OFF) return f(a, [] { g(); }); h();", "h();"),
    "else": ("if constexpr (F::OFF) f(); else g(); h();", "g(); h();"),
    "conditions inside": ("if constexpr (F::OFF) if (a) f(); else for (;;) g(); h();", "h();"),
    "one of several terms": ("if constexpr (WHOLE && F::OFF && N<F> > 0) f(); h();", "h();"),
    "a term that is enough": ("if constexpr (WHOLE || F::OFF) f();", None),
    "a term that is not false": ("if constexpr (!F::OFF && WHOLE) f();", None),
    "another's constant": ("if constexpr (G::OFF) f();", None),
    "a condition of values": ("if (F::OFF) f();", None),
    "a term inside another one": ("if constexpr (!(B && F::OFF && C)) f();", None),
    "a comma": ("if constexpr (F::OFF && B, C) f();", None),
    "a statement in front of it": ("if constexpr (a = f(); B && F::OFF) g();", None),
    "an alternative by its name": ("if constexpr (F::OFF && B or C) f();", None),
    "a chain": ("if (a) f(); else if constexpr (F::OFF) g(); else h();", "if (a) f(); else h();"),
    "the end of a chain": ("if (a) f(); else if constexpr (F::OFF) g(); h();", "if (a) f(); else ; h();"),
    "all of a loop": ("for (;;) if constexpr (F::OFF) g(); h();", "for (;;) ; h();"),
}


@pytest.mark.parametrize("which", BRANCHES)
def test_branches_that_no_kernel_takes_make_no_code(which: str) -> None:
    given, left = BRANCHES[which]
    assert without_untaken(tokens(f"{TWICE} {given}")) == tokens(f"{TWICE} {left or given}")
    for other in LATER:
        found = tokens(f"{DEFAULTS}\n{other}\n{given}")
        assert without_untaken(found) == found


BOUNDS = {  # of a kernel, and what is left of them
    "(N, 2)": "(N)",
    "(f(N), (LEAST<F, SHAPE>))": "(f(N))",
    "(N)": "(N)",
    "(N<A, B>)": "(N<A, B>)",
    "(N<A, B>, 2)": "(N<A, B>, 2)",
    "(N, LEAST<F, SHAPE>)": "(N)",
    "(max(N, 128), 2)": "(max(N, 128))",
    "(N, 2, 8)": "(N, 2, 8)",  # at most so many blocks of a cluster, or a launch fails
    "(N, LEAST<F>, MOST)": "(N, LEAST<F>, MOST)",
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_blocks_that_an_sm_has_registers_for_decide_no_result(bounds: str) -> None:
    kernel = "__global__ void __launch_bounds__{} o(int n, int m) {{ f(n, m); }}"
    left = tokens(kernel.format(BOUNDS[bounds]))
    assert without_residents(tokens(kernel.format(bounds))) == left


OF_TYPES = "template <class P> constexpr bool OFF = false;"
OF_SOME_TYPES = (  # ways in which it is true of a type
    "template <class P> constexpr bool OFF<Marked<P>> = true;",
    "template <> constexpr bool OFF<int> = true;",
    "template <> constexpr bool OFF<int>{true};",
    "template <class P> struct S { static constexpr bool OFF = true; };",
    "FLAG(OFF);",
    "FLAG(OFF<int>);",
    "\n#define FLAG(NAME) template <> constexpr bool O##NAME<int> = true;\n",
    "template <class P> constexpr bool OFF = g<P>();",
)


@pytest.mark.parametrize("other", [*OF_SOME_TYPES, ""])
def test_a_constant_of_types_is_false_where_no_type_has_another(other: str) -> None:
    given = f"{OF_TYPES} {other} if constexpr (WHOLE && OFF<P>) f(); else g();"
    left = f"{OF_TYPES} {other} g();"
    assert without_untaken(tokens(given)) == tokens(given if other else left)


@pytest.mark.parametrize(
    ("name", "scalars"),
    [
        ("gelu", {}),
        ("leaky_relu", {"negative_slope": Fraction(0.01)}),
        ("kernelbench/matrix_times_number", {"s": results.NUMBER}),
    ],
)
def test_scalars_have_their_defaults_and_numbers_without_one_some_value(
    name: str, scalars: dict[str, Fraction]
) -> None:
    assert results._scalars(module(ROOT / "generated" / f"{name}.py")) == scalars


DEVICE = """#define ON_BOTH __host__ __device__
#include <cmath>
namespace fusegen {{ namespace {{
template <class F> __global__ void run(int n) {{
#pragma unroll
  for (int k = 0; k < n; ++k) F::of({number});
}}
{marked}
struct Call {{ int numbers() {{ return {member}; }} }};
template <class F, typename T>
int launch(int n) {{ run<F><<<{grid}, 1>>>(n); return 0; }}
}}}}
MACRO_OF_MODULE(kernel_0123456789abcdef)
"""
PARTS = {  # what differs in a text, and whether kernels may differ
    "a launch": ({"grid": "2"}, False),
    "a kernel": ({"number": "2"}, True),
    "a member": ({"member": "2"}, True),
    "a function of both": ({"marked": "ON_BOTH int f(int n) { return n + 2; }"}, True),
    "a constant expression": ({"marked": "constexpr int f(int n) { return n + 2; }"}, True),
    "a function of the host": ({"marked": "int f(int n) { return n + 2; }"}, False),
    "one that makes code for a device": ({"marked": "int f() { g([] __device__ { h(2); }); }"}, True),
}


@pytest.mark.parametrize("which", PARTS)
def test_functions_of_the_host_are_no_part_of_kernels(which: str) -> None:
    changed, differs = PARTS[which]
    usual = {"number": "1", "member": "1", "grid": "1", "marked": ""}
    old, now = (text.device_part(DEVICE.format(**usual | each)) for each in ({}, changed))
    assert (old != now) is differs
    assert "launch" not in old
    assert "__global__ void run" in old


# --- modules of several kernels -------------------------------------------------------------------------

SEVERAL = "kernelbench/linears_sigmoid_logsumexp"
MORE = "changed: more than these names of {}"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "  return sigmoid(x);",
            "  return\n      sigmoid(x);  // of one",
            "unchanged (text but for what",
        ),
        ("  return sigmoid(x);", "  return sigmoid(2 * x);", MORE.format("hidden")),
        ("  return exp(x - of_row);", "  return exp(of_row - x);", MORE.format("the last kernel")),
        ("    return torch.sigmoid(x)", "    return torch.tanh(x)", MORE.format("hidden")),
    ],
)
def test_each_kernel_of_a_module_is_compared(old: str, new: str, told: str) -> None:
    before = (ROOT / "generated" / f"{SEVERAL}.py").read_text(encoding="utf-8")
    after = before.replace(old, new)
    assert after != before
    runtime = files_of(ROOT / "generated" / "_runtime")
    pair: Any = SimpleNamespace(name=SEVERAL, texts=(before, after), runtimes=(runtime, runtime))
    assert str(by_names(pair, "cpu", NONE)).startswith(told)
