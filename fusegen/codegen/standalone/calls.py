"""The functions that items call, by the types of their arguments.

Each function is read once for each choice of its types. Where a body cannot be read, its item is left out:
it then needs every function that it names.
"""

import re
from collections.abc import Iterable

from fusegen.codegen.standalone.bodies import Body, decided
from fusegen.codegen.standalone.functions import function
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.overloads import Overloads
from fusegen.codegen.standalone.tokens import Unread


class Calls:
    """The functions that items call, found from those that are called first."""

    def __init__(self, known: Overloads) -> None:
        self.known = known
        self.made: dict[Item, dict[Item, None]] = {}
        self.instances: dict[Item, list[dict[str, str]]] = {}
        self.unread: set[Item] = set()

    def follow_all(self, items: Iterable[Item]) -> bool:
        """Note what functions call, whatever their types are; return whether there was a new one."""
        new = [found for item in items if item not in self.made and (found := function(item))]
        for found in new:
            self.follow(found.item, found.body, found.bound({}, self.known.resolved))
        return bool(new)

    def follow(self, item: Item, text: str, types: dict[str, str]) -> None:
        """Note what a body calls, and what that calls in turn."""
        self.made.setdefault(item, {})
        self.instances.setdefault(item, [])
        if types in self.instances[item]:
            return
        self.instances[item].append(dict(types))
        body = Body(text, dict(types), self.known, self.known.scopes(item))
        try:
            body.read()
        except (Unread, IndexError):
            self.unread.add(item)
            return
        for one, bound in body.called:
            self.made[item][one.item] = None
            self.follow(one.item, one.body, one.bound(bound, self.known.resolved))

    def decided(self, item: Item, condition: str) -> set[bool | None]:
        """Return whether a condition in an item holds, for all types of it."""
        return {decided(condition, self._named(item, types)) for types in self.instances.get(item, [])}

    def _named(self, item: Item, types: dict[str, str]) -> dict[str, str]:
        named = re.findall(r"using (\w+) = ([^;]*);", item.text)
        return types | {name: self.known.resolved(text, types) for name, text in named}

    def calls(self) -> dict[Item, Iterable[Item]]:
        """Return what each item calls, of those that were read."""
        return {item: called for item, called in self.made.items() if item not in self.unread}
