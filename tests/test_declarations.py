"""C++ in pieces: where declarations begin and end, and by which names they are reached."""

import pytest
from budget import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from fusegen.core.header_files import without_comments
from fusegen.evidence.certify.declarations import Piece, pieces

NAMED = {  # declarations, and the names that reach them
    "inline int f() { if (a) { b(); } return 1; }": "f",
    'inline const char* f() { return "}{\\"("; }': "f",
    "inline bool f(char c) { return c == '{' || c == '\"' || 1'000 < c; }": "f",
    'inline const char* f() { return R"x(} ")" ;)x"; }': "f",
    "constexpr int f(int x) { return x; }": "f",
    "template <class T, int N = (3 > 2), class U = A<B<T>>>\nT g(T x = {}, int y = h(1)) {}": "g",
    "template <template <class> class F> auto g(F<int> x) -> decltype(x.a()) { return x.a(); }": "g",
    "template <class T> std::enable_if_t<T::A, T> g(T (&x)[2], int (*y)(T));": "g",
    "template <> inline float g(const half* x) { return *x; }": "g",
    "template <int N>\n__global__ void __launch_bounds__(N, 2)\n  g(const __grid_constant__ A of) {}": "g",
    "[[maybe_unused]] static float f(double x) noexcept { return x; }": "f",
    "__attribute__((flatten)) inline void f([[maybe_unused]] int x) {\n#ifdef A\n  b();\n#endif\n}": "f",
    "inline void f() {\n#pragma unroll\n  for (;;) b();\n}": "f",
    "inline void f() {};": "f",
    "struct S;": "S",
    "struct S { int a; void b() { c(); } operator int() const { return a; } };": "S",
    "template <class T, class = void> struct S : A<T, (1 > 0)> { T a; };": "S",
    "template <class T> struct S<A<T>> final { T a; };": "S",
    "template <> struct S<int> { using A = int; };": "S",
    "struct alignas(16) S { float a[4]; };": "S",
    "union U { int a; float b; };": "U",
    "enum E { A, B = 1 << 2, C };": "A B C E",
    "enum class E : unsigned char { A };": "A E",
    "using A = B<int>;": "A",
    "template <class T> using A = typename B<T>::C;": "A",
    "using std::fabs;": "fabs",
    "constexpr int A = 1, B[] = {2, 3}, C{4};": "A B C",
    "template <class T> constexpr bool V = sizeof(T) == 2;": "V",
    "template <class T> constexpr bool V<A<T>> = true;": "A V",
    "template <class T> __device__ alignas(16) B<T> v[4];": "B v",
    "#define FUSEGEN_M(x, y) \\\n  void x() { \\\n    y; \\\n  }\n": "FUSEGEN_M",
}
ALWAYS = (
    "inline bool operator<(A a, A b) { return a.x < b.x; }",
    "template <class T> A& operator+=(A& a, T b) { return a; }",
    'inline A operator""_a(const char* x) { return {}; }',
    "inline A::operator int() const { return 1; }",
    "template <class T> T A<T>::f() { return {}; }",
    "template <class T> A(T) -> A<T>;",
    "template struct A<int>;",
    "extern template void f<int>(int);",
    "template <> inline int f<int>(int x) { return x; }",
    "template <> constexpr int A<int> = LIMIT;",
    "enum A { B = 1, MADE_BY(f) LAST };",
    "struct A { static const inline int b = f(2); };",
    "__attribute__((__used__)) static int f() { return 2; }",
    "using namespace std;",
    "namespace a = b;",
    'static_assert(sizeof(A) == 1, "");',
    "static const bool registered = [] { return f(); }();",
    "static __constant__ const double A[] = {1, 2};",
    "struct A { int b; } a;",
    "struct { int b; } a;",
    "enum { A, B };",
    "enum E { A\n#ifdef X\n, B\n#endif\n};",
    "struct A { static inline B b = c(); };",
    'extern "C" int f(int x);',
    'extern "C" { int f(); struct A; }',
    "static __global__ void f(int x) {}",
    "template <> float f(int x) { return 1; }",
    "static __device__ constexpr float A[] = {1};",
    "constexpr int\n#ifdef A\nx\n#else\ny\n#endif\n= 3;",
    "__attribute__((used)) static int f() { return 1; }",
    "inline Type (f)(int x) { return 1; }",
    "inline Type (*f(int x))(int) { return 0; }",
    "inline Type (*f(int x)) { return 0; }",
    "inline Type (f(int x)) { return 0; }",
    "inline Type (A::*f(int x)) { return 0; }",
    "inline Type (&f(int x))[2] { return a; }",
    "A b(3);",
    "int f(int x);",
    "A_MACRO(b);",
    "static A_MACRO(b) { return 1; }",
    "inline FUSEGEN_TYPE f() { return 1; }",
    "inline\n#ifdef A\nint f\n#else\nint g\n#endif\n() { return 1; }",
    "inline void f() {\n#define A 1\n}",
    "typedef int A;",
    "asm(\"\");",
    "#define A 1\n",
    "#define FUSEGEN_A 1\n",
    "#define a(x) x\n",
    "#define FUSEGEN_M(x) x {\n",
    "#pragma push_macro(\"A\")\n",
    "#include <cmath>\n",
    "#undef A\n",
)  # fmt: skip
WHOLE = {  # texts of which nothing is taken apart, and why
    "template <class T> requires A<T> void f(T x) {}": "a constraint",
    "template <class T> concept A = true;": "a concept",
    "#ifdef A\ninline int f() {\n#else\ninline int g() {\n#endif\n}": "branches that open braces",
    "#ifdef A\nnamespace a {\n#else\nnamespace {\n#endif\ninline int f() {}\n}": "two namespaces",
    "#ifdef A\nnamespace a {\n#endif\ninline int f() {}\n#ifdef A\n}\n#endif": "a namespace in a branch",
    "inline int f()\n#ifdef A\n;\n#else\n{ return 1; }\n#endif": "a branch in which a declaration ends",
    "inline int f() {} }": "a brace too many",
    "namespace a { inline int f() {}": "a brace that nothing closes",
    "inline int f() {}\nA_MACRO(b)": "the end of the text in a declaration",
    "inline int f() <% return 1; %>": "digraphs",
    "inline int f() { return ' ; }": "an open literal",
    "inline int f() {}\n#ifdef A": "a conditional that nothing closes",
}
SNIPPETS = {**NAMED, **dict.fromkeys(ALWAYS, "")}


def names(found: tuple[Piece, ...]) -> list[str]:
    return [" ".join(sorted(each.names)) for each in found]


@pytest.mark.together
@pytest.mark.parametrize("text", SNIPPETS)
def test_a_declaration_is_reached_by_its_names(text: str) -> None:
    assert names(pieces(text)) == [SNIPPETS[text]]


@pytest.mark.together
@pytest.mark.parametrize("text", WHOLE)
def test_what_is_not_surely_understood_counts_as_a_whole(text: str) -> None:
    assert names(pieces(f"struct A {{}};\n{text}\n")) == [""], WHOLE[text]


def test_a_function_is_in_the_machine_code_unless_it_is_local_to_the_file() -> None:
    text = "int f() { return 1; }\n"
    assert names(pieces(text)) == [""]
    assert names(pieces(f"namespace a {{\n{text}}}\n")) == ["", "", ""]
    assert names(pieces(f"namespace a {{ namespace {{\n{text}}}}}\n")) == ["", "", "f", "", ""]


def test_what_is_added_to_the_standard_library_always_counts() -> None:
    assert names(pieces("namespace std { template <> struct is_integral<A> : true_type {}; }")) == [""] * 3


AROUND = [
    ("", ""),
    ("namespace a::b {\n", "}\n"),
    ("#if A\n", "#else\n#endif\n"),
    ("#ifndef A\n", "#endif\n"),
]
PARTS = st.tuples(st.sampled_from(sorted(SNIPPETS)), st.sampled_from(AROUND))


@given(st.lists(PARTS, min_size=1, max_size=6))
@settings(max_examples=examples(300), deadline=None)
def test_pieces_are_those_of_the_parts_in_any_order(parts: list[tuple[str, tuple[str, str]]]) -> None:
    text, expected = "", list[str]()
    for part, (begin, end) in parts:
        text += f"{begin}{part}\n{end}"
        expected += [""] * bool(begin) + [SNIPPETS[part]] + [""] * end.count("\n")
    assert "".join(each.text for each in pieces(text)) == without_comments(text) + "\n"
    assert names(pieces(text)) == expected
