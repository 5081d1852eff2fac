"""The items that kernels of phases need: macros of a type have the statements, whose calls are followed."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusegen.codegen.render import fill
from fusegen.codegen.standalone import file_parts, layout, text
from fusegen.codegen.standalone.calls import Calls
from fusegen.codegen.standalone.items import Item, items
from fusegen.codegen.standalone.needed import Library, Uses
from fusegen.codegen.standalone.overloads import Overloads
from fusegen.codegen.standalone.reading import Module

Types = dict[str, str]  # what names stand for in statements
Statements = Callable[[Collection[Item]], Mapping[str, list[Types]]]  # the types of each macro's statements


@dataclass(frozen=True)
class Loops:
    """The loops in which phases run.

    Attributes:
        folder: that of their templates.
        statements: gives the types of names in a module's phases, by the macro.
        given_up: what a file says that it does not have.
    """

    folder: str
    statements: Statements
    given_up: str

    def file(
        self,
        module: Module,
        facts: dict[str, Any],
        arguments: tuple[list[str], list[str]],
        dtypes: list[str],
    ) -> dict[str, Any]:
        """Return what the templates of a file name.

        Args:
            module: that it is of.
            facts: what templates of the kind name beside that of all.
            arguments: the tensors and the numbers of the module's function.
            dtypes: that the file takes.
        """
        laid = self._laid(module, facts)
        own = text.python_of(module, *arguments) | {"given_up": self.given_up}
        return own | facts | laid | file_parts.head(module, laid, dtypes)

    def _laid(self, module: Module, context: dict[str, Any]) -> dict[str, Any]:
        """Return the C++ of a module's kernels, and the lines in front of it."""
        found = {device: self._needed(module, device, context) for device in text.FORMS}
        needed = {device: uses for device, (uses, _) in found.items()}

        def decide(item: Item, condition: str) -> bool | None:
            values = {value for _, calls in found.values() for value in calls.decided(item, condition)}
            return values.pop() if len(values) == 1 else None

        heads = {f"{d}_head": text.head_lines(d, needed[d]) for d in text.FORMS}
        return layout.laid(**needed, decide=decide) | heads

    def _needed(self, module: Module, device: str, context: dict[str, Any]) -> tuple[Uses, Calls]:
        """Return the items that the C++ of a device needs, and the calls of their functions."""
        source = module.source(device)
        shell = [
            item
            for name in ("both.h", text.FORMS[device])
            for item in items(fill(f"standalone/{self.folder}/{name}.j2", context))
        ]
        roots = [item for item in (*source.own, *shell) if {"run", *text.PASSES.values()} & {*item.names}]
        library = Library((*source.own, *shell), source.headers)
        calls = self._calls(source.own, library.items, device)
        while calls.follow_all(found := library.needed(roots, calls.calls())):
            continue
        return found, calls

    def _calls(self, own: Collection[Item], others: Collection[Item], device: str) -> Calls:
        """Return the functions that the phases of a device call."""
        found = Calls(Overloads([*own, *others], device))
        statements = self.statements(own)
        for one in own:
            for macro, text_of in _macros(one.text, statements):
                for types in statements[macro]:
                    found.follow(one, f"{text_of};", types | {macro: ""})
        return found


def _macros(struct: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and statements of the macros of a type: FUSEGEN_ROW(...)."""
    for name in names:
        begin = f"FUSEGEN_{name}("
        at = struct.find(begin)
        while at >= 0:
            end, depth = at + len(begin), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(struct[end], 0)
                end += 1
            yield name, struct[at + len(begin) : end - 1]
            at = struct.find(begin, end)
