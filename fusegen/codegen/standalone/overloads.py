"""The functions of a name, and which of them C++ calls for some types."""

import re
from collections import defaultdict
from collections.abc import Iterable

from fusegen.codegen.standalone.functions import ANY, SCALAR, Function, function, parts, single, sized
from fusegen.codegen.standalone.items import Item

ADL = {"FastFloat": "fast_float", "PlainDouble": "plain_double"}  # the namespaces of types
USING = re.compile(r"using (\w+)::[a-z]\w*;")  # of a function
TYPE = re.compile(r"^(?:template <[^>]*>\s)?(?:struct|using(?! std::)|enum)\b", re.MULTILINE)
CONSTANT = re.compile(r"^constexpr (float|double|int|int64_t) ", re.MULTILINE)
BODIES = {"DOUBLE_WORD", "SINGLE_WORD", "NEAR", "SINGLE_RESULT"}  # that a call may ask for


class Overloads:
    """The functions and types of some items."""

    def __init__(
        self,
        items: Iterable[Item],  # of the device
        device: str,  # its name; on the CPU functions of floats are those of doubles, too
    ) -> None:
        self.generic_float = device == "cpu"
        self.functions: dict[str, list[Function]] = defaultdict(list)
        self.structs: dict[str, Item] = {}
        self.constants: dict[str, str] = {}
        self.opened: dict[str, set[str]] = defaultdict(set)
        for item in items:
            self.opened[item.scope].add(item.scope)
            if using := USING.match(item.text):
                self.opened[item.scope].add(using[1])
            if found := function(item):
                self.functions[item.names[0]].append(found)
            elif TYPE.search(item.text):
                self.structs.update({name: item for name in item.names if name not in self.functions})
            elif constant := CONSTANT.search(item.text):
                self.constants |= {name: self.resolved(constant[1], {}) for name in item.names}

    def scopes(self, item: Item) -> tuple[str, ...]:
        """Return the namespaces in which an item looks up what it calls, its own one first."""
        return (item.scope, "", *self.opened[item.scope], *(item.words & self.opened.keys()))

    def is_type(self, name: str) -> bool:
        """Return True if a name is that of a type."""
        return name in self.structs or name in ("Scalar", "Promoted")

    def field(self, kind: str, name: str) -> str:
        """Return the type of a member."""
        if kind.startswith("DoubleWord"):
            return single(kind)
        if kind.startswith("params<"):
            return kind[7:-1]
        base, _, argument = kind.partition("<")
        text = self.structs[base].text if base in self.structs else ""
        declared = rf"(\w+) [^;(]*\b{name}\b"  # on a line of its own, or behind another member
        found = re.search(rf"^\s+{declared}", text, re.MULTILINE) or re.search(rf"[{{;]\s*{declared}", text)
        one = self.resolved(found[1], {"M": argument[:-1] or ANY}) if found else ANY
        is_array = found and re.search(rf"\b{name}\[\w+\][,;]", text)
        return f"array<{one}>" if is_array else one

    def resolved(self, text: str, types: dict[str, str]) -> str:
        """Return a type without names of templates."""
        text = re.sub(r"\bconst\b|\btypename\b|&", "", text).replace(" ", "")
        name, _, inside = text.partition("<")
        arguments = [self.resolved(part, types) for part in parts(inside[:-1])] if inside else []
        if not arguments:
            return types.get(text, "int" if re.fullmatch(r"u?int\d*_t|int|bool|unsigned", text) else text)
        if ANY in arguments and name not in ("ForBody", "GenericFor"):
            return ANY
        base = single(arguments[0])
        match name:
            case "Scalar" | "OfRow":
                return base
            case "Promoted":
                return base if base == "FastFloat" else f"DoubleWord<{base}>"
            case "DoubleWord":
                return "FastFloat" if base == "FastFloat" else f"DoubleWord<{base}>"
            case "SingleFor":
                return "float"
            case "GenericFor" | "ForBody":
                return arguments[-1]
            case "ParamsOf":
                return f"params<{arguments[-1]}>"
        return f"{name}<{','.join(arguments)}>"

    def chosen(
        self, name: str, arguments: list[str], explicit: dict[str, str], scopes: tuple[str, ...]
    ) -> list[tuple[Function, dict[str, str]]]:
        """Return the functions that a call may call, with the types of their templates."""
        functions = self.functions.get(name, ())
        hides = scopes[0] and any(one.item.scope == scopes[0] for one in functions)
        hides = hides and not any(kind.startswith("DoubleWord") for kind in arguments)
        seen = {*scopes} - ({""} if hides else set())
        seen |= {ADL[single(kind)] for kind in arguments if single(kind) in ADL}
        arguments = [kind if self._is_known(kind) else ANY for kind in arguments]
        viable = []
        for one in functions:
            if one.item.scope in seen and len(one.parameters) == len(arguments):
                matched = self._matched(one, arguments, explicit)
                if matched:
                    viable.append((*matched, one))
        best = max((score for score, *_ in viable), default=0)
        return [(one, types) for score, types, one in viable if score == best or ANY in arguments]

    def _is_known(self, kind: str) -> bool:
        inner = kind[len("array<") : -1] if kind.startswith("array<") else kind
        return _is_number(inner) or inner.partition("<")[0] in self.structs

    def _matched(
        self, function: Function, arguments: list[str], explicit: dict[str, str]
    ) -> tuple[int, dict[str, str]] | None:
        """Return how well a function takes arguments, and the types of its template, if it does."""
        names = [name for _, name, _ in function.template]
        types = {names[int(i)]: kind for i, kind in explicit.items() if int(i) < len(names)}
        if len(explicit) > len(names) or (
            explicit and function.template[0][0] != "Body" and any(k in BODIES for k in explicit.values())
        ):
            return None
        score = 0 if names else 1
        for (pattern, _), kind in zip(function.parameters, arguments, strict=True):
            step = self._bind(pattern, kind, names, types)
            if step is None:
                return None
            score += step
        for kind, name, default in function.template:
            if name not in types:
                if kind == "Body" and not explicit:
                    return None
                types[name] = default or ANY
        if any("DoubleWord" in pattern and "int" in types.values() for pattern, _ in function.parameters):
            return None
        return (score, types) if self._allowed(function.result, types) else None

    def _bind(self, pattern: str, kind: str, names: list[str], types: dict[str, str]) -> int | None:
        """Match a parameter with an argument, note the types of the template, return how well it fits."""
        if kind == ANY:
            return 0
        if pattern in names:
            bound = types.setdefault(pattern, kind)
            return 1 if bound == kind else None if _is_number(bound) and _is_number(kind) else 0
        outer, _, inside = pattern.partition("<")
        if outer in ("Scalar", "Promoted", "OfRow"):
            return 0
        if inside and inside[:-1] in names:
            if not kind.startswith(f"{outer}<"):
                return None
            bound = kind[len(outer) + 1 : -1]
            chosen = types.setdefault(inside[:-1], bound)
            return 2 if chosen == bound else None if _is_number(chosen) and _is_number(bound) else 0
        exact = self.resolved(pattern, types)
        if exact == kind:
            return 3
        if exact == f"DoubleWord<{kind}>":
            return -5
        if not _is_number(exact) and not _is_number(kind):  # other names of one type, perhaps
            return 0
        return -5 if exact in SCALAR and _is_number(kind) else None

    def _allowed(self, result: str, types: dict[str, str]) -> bool:
        found = re.match(r"(GenericFor|SingleFor|ForBody)<(.*)>$", result)
        if not found:
            return True
        of = parts(found[2])
        base = single(types.get(of[0], ANY))
        if found[1] == "ForBody":
            return base in (of[1], ANY) and self._allowed(of[2], types)
        size = sized(base)
        if found[1] == "SingleFor":
            return base in ("float", ANY)
        return (self.generic_float or size in (0, 8)) and self._allowed(of[1], types)


def _is_number(kind: str) -> bool:
    return kind in SCALAR or kind.startswith("DoubleWord<")
