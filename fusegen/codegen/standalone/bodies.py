"""The body of a function, read for its calls: that part of C++ which functions of an element use.

The value of an expression is its type, as a text: float, DoubleWord<float>, `?` where it is not known. A
call of arguments that are not known calls every function of the name. What is not read raises Unread.
"""

import operator
import re
from collections.abc import Callable

from fusegen.codegen.standalone.functions import ANY, Function, common, sized
from fusegen.codegen.standalone.overloads import Overloads
from fusegen.codegen.standalone.tokens import BUILT_IN, LEVEL, LOGIC, QUALIFIERS, Tokens, Unread

OPERATION: dict[str, Callable[[int, int], object]] = {
    "==": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge}  # fmt: skip
CASTS = ("static_cast", "reinterpret_cast")
SIZE = re.compile(r"sizeof\((\w+)\)(==|>|<|>=)(\d+)")


def decided(condition: str, types: dict[str, str]) -> bool | None:
    """Return whether a condition holds, if the types say so."""
    holds: list[object] = []
    for part in condition.replace(" ", "").split("&&"):
        found = SIZE.fullmatch(part)
        size = sized(types.get(found[1], ANY)) if found else 0
        if not found or not size:
            return None
        holds.append(OPERATION[found[2]](size, int(found[3])))
    return all(holds)


class Body(Tokens):
    """A function's body, read once for its types."""

    def __init__(self, text: str, types: dict[str, str], known: Overloads, scopes: tuple[str, ...]) -> None:
        super().__init__(text)
        self.types, self.known, self.scopes = types, known, scopes
        self.called: list[tuple[Function, dict[str, str]]] = []

    def read(self) -> None:
        """Read all statements."""
        while self.next:
            self.statement()

    def statement(self) -> None:
        """Read a statement."""
        match self.next:
            case "{":
                self.take()
                self.until_closed()
            case ";" | "UNROLL":
                self.take()
            case "if":
                self.branches()
            case "for":
                self.take()
                self.take("(")
                self.statement()
                self.statement()
                self.expressions(")")
                self.statement()
            case "using":
                name = self.tokens[self.at + 1]
                self.at += 3
                self.types[name] = self.known.resolved(self.until(";"), self.types)
            case "asm":
                self.until(";")
            case "return":
                self.take()
                self.value()
                self.take(";")
            case _:
                self.declaration()

    def until_closed(self) -> None:
        """Read the statements of a block, and go past it."""
        while self.next != "}":
            self.statement()
        self.take()

    def branches(self) -> None:
        """Read an if; of `if constexpr` only what is compiled, where the condition is known."""
        self.take("if")
        constant = self.next == "constexpr"
        self.at += constant
        self.take("(")
        begin = self.at
        self.expressions(")")
        value = decided("".join(self.tokens[begin : self.at - 1]), self.types) if constant else None
        (self.uncompiled if value is False else self.statement)()
        if self.next == "else":
            self.take()
            (self.uncompiled if value is True else self.statement)()

    def uncompiled(self) -> None:
        """Read a statement that is not compiled."""
        calls = len(self.called)
        self.statement()
        del self.called[calls:]

    def type_here(self) -> str:
        """Return the type that begins here, or nothing; go past it if a name follows."""
        begin = self.at
        while self.next in QUALIFIERS:
            self.take()
        name = self.next
        if name in BUILT_IN or name in self.types or self.known.is_type(name):
            text = self.take()
            if self.next == "<" and name not in BUILT_IN:
                self.take()
                text += f"<{self.past('>')}>"
            while self.next in ("const", "*", "&"):
                self.take()
            if re.match(r"[A-Za-z_(]", self.next) and self.next != "(":
                return self.known.resolved(text, self.types)
        if begin < self.at and self.tokens[begin] in QUALIFIERS:
            raise Unread(name)
        self.at = begin
        return ""

    def declaration(self) -> None:
        """Read a declaration, or an expression."""
        kind = self.type_here()
        if not kind:
            self.expressions(";")
            return
        while True:
            while self.next in ("const", "*"):
                self.take()
            one = f"array<{kind}>" if "*" in self.tokens[self.at - 2 : self.at] else kind
            name, value = self.take(), ANY
            while self.next == "[":
                self.take()
                self.expressions("]")
                one = f"array<{one}>"
            if self.next == "=":
                self.take()
                value = self.value()
            elif self.next in ("(", "{"):
                self.expressions({"(": ")", "{": "}"}[self.take()])
            self.types[f"{name} "] = value if kind == "auto" else one
            if self.take(",", ";", ":") == ";":
                return

    def value(self) -> str:
        """Read an initialiser."""
        if self.next != "{":
            return self.expression(1)
        self.take()
        self.expressions("}")
        return ANY

    def expressions(self, end: str) -> list[str]:
        """Read expressions up to a token; return their types."""
        found: list[str] = []
        while self.next != end:
            found.append(self.value() if self.next == "{" else self.expression())
            if self.next != end:
                self.take(",")
        self.take(end)
        return found

    def expression(self, least: int = 0) -> str:
        """Read an expression of operators that bind at least so tightly."""
        left = self.prefix()
        while (sign := self.sign()) in LEVEL and LEVEL[sign] >= least:
            self.at += 2 if sign == ">>" else 1
            if sign == "?":
                left = self.expression(1)
                self.take(":")
                left = common(left, self.expression(1))
                continue
            right = self.value() if LEVEL[sign] == 0 else self.expression(LEVEL[sign] + 1)
            left = self.operation(sign, [left, right])
        return left

    def operation(self, sign: str, operands: list[str]) -> str:
        """Return the type of an operation; one of double-word values calls a function."""
        if pointers := [operand for operand in operands if operand.startswith("array<")]:
            return "int" if sign in LOGIC else pointers[0]
        result = common(*operands)
        if any(operand.startswith("DoubleWord") or operand == ANY for operand in operands):
            result = self.call(f"operator{sign}", operands, {}, result)
        return "int" if sign in LOGIC else result

    def prefix(self) -> str:
        """Read an operand with the operators in front of it, and what stands behind it."""
        if self.next in ("-", "+", "!", "~", "*", "&", "++", "--"):
            sign = self.take()
            value = self.prefix()
            if sign == "*":
                return value[6:-1] if value.startswith("array<") else value
            return self.operation(sign, [value]) if sign == "-" else value if sign != "!" else "int"
        value = self.operand()
        while self.next in (".", "[", "++", "--"):
            token = self.take()
            if token == ".":
                value = self.known.field(value, self.take())
                if self.next == "(":  # of a method, whose type names what it calls
                    self.take()
                    self.expressions(")")
            elif token == "[":
                self.expressions("]")
                value = value[6:-1] if value.startswith("array<") else ANY
        return value

    def operand(self) -> str:
        """Read a number, a name, a call, or what stands in parentheses."""
        token = self.take()
        if token == "(":
            return self.expressions(")")[-1]
        if re.match(r"\.?\d", token):
            is_hex, has_power = "x" in token, "p" in token
            if token.endswith("f") and (has_power or not is_hex):
                return "float"
            return "double" if has_power or (not is_hex and set("e.") & set(token)) else "int"
        if token == "::":  # of the C library
            self.take()
            self.take("(")
            return common(*self.expressions(")"))
        if not re.match(r"[A-Za-z_]", token):
            raise Unread(token)
        qualified = self.next == "::"  # a constant, unless it is called
        while self.next == "::":
            self.take()
            token = self.take()
            token = self.take() if token == "template" else token
        explicit = self.explicit()
        if self.next != "(":
            return self.types.get(f"{token} ", self.known.constants.get(token, "int" if qualified else ANY))
        self.take()
        arguments = self.expressions(")")
        if token in CASTS and explicit:
            kind = self.known.resolved(explicit[0].rstrip("* "), self.types)
            return f"array<{kind}>" if "*" in explicit[0] else kind
        if token in self.types or token in BUILT_IN or self.known.is_type(token):
            named = f"{token}<{', '.join(explicit)}>" if explicit else token
            return self.known.resolved(named, self.types)
        bound = {str(i): self.known.resolved(each, self.types) for i, each in enumerate(explicit)}
        return self.call(token, arguments, bound, common(*arguments) if arguments else ANY)

    def call(self, name: str, arguments: list[str], explicit: dict[str, str], otherwise: str) -> str:
        """Note a call, and return the type of its result; that of a function of the C library is given."""
        found = self.known.chosen(name, arguments, explicit, self.scopes)
        self.called += found
        results = {self.known.resolved(one.result, bound) for one, bound in found}
        return results.pop() if len(results) == 1 else otherwise if not found else ANY
