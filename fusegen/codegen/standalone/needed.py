"""The items that some others need: what they name, and what that names in turn."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusegen.codegen.standalone.functions import function
from fusegen.codegen.standalone.items import WORD, Item

OPERATORS = re.compile(r"[-+*/<>=!]=?")
SPECIALISED = re.compile(r"template <(.*)>\n(?:struct|class) \w+<(.*)> \{")
TYPE = re.compile(r"\s*using (\w+)::(\w+);")
MACROS = ("HOST_DEVICE", "UNROLL", "ALWAYS_INLINE", "INLINES_ALL")  # which the file defines for each device
Calls = Mapping[Item, Iterable[Item]]
Uses = dict[Item, list[Item]]  # what each item names


class Library:
    """Items by the names that they define; the first of a name in the own ones hides all others."""

    def __init__(self, own: Sequence[Item], others: Sequence[Item]) -> None:
        hidden = {*MACROS, *(name for item in own for name in item.names)}
        kept = (item for item in others if item.scope or hidden.isdisjoint(item.names))
        self.items = tuple(dict.fromkeys(item for item in (*own, *kept) if item.names))
        self.place = {item: place for place, item in enumerate(others)}
        self.by_name: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            for name in item.names:
                self.by_name[name].append(item)

    def needed(
        self,
        roots: Iterable[Item],  # the items
        calls: Calls,  # the functions that items call, of those whose calls are known
    ) -> Uses:
        """Return the items that some need, these among them, with what each of them names."""
        found: Uses = {root: [] for root in roots}
        while True:
            opened = {match[1] for item in found if (match := TYPE.match(item.text))}
            uses = {item: [*dict.fromkeys(self._named(item, opened, found, calls))] for item in found}
            new = dict.fromkeys(
                other for several in uses.values() for other in several if other not in found
            )
            if not new:
                return {
                    item: [o for o in named if not self._behind(o, item)] for item, named in uses.items()
                }
            found |= {item: [] for item in new}

    def _named(self, item: Item, opened: set[str], found: Uses, calls: Calls) -> Iterator[Item]:
        """Yield what an item names; in a namespace of a type that is used, functions of the type, too."""
        yield from calls.get(item, ())
        own = () if function(item) else item.names
        for name in (*sorted(item.words.difference(own)), *_operators(item)):
            for other in self.by_name.get(name, ()):
                if item in calls and function(other):
                    continue
                seen = not other.scope or other.scope in item.words or other.scope in (item.scope, *opened)
                if seen and other is not item and self._applies(other, found):
                    yield other

    def _behind(self, item: Item, other: Item) -> bool:
        """Return True if the headers have an item behind another one, which then does not need it."""
        return item in self.place and other in self.place and self.place[item] > self.place[other]

    def _applies(self, item: Item, found: Uses) -> bool:
        """Return True unless an item specialises another for a type that is not needed."""
        special = SPECIALISED.search(item.text)
        types = set(WORD.findall(special[2])) - set(WORD.findall(special[1])) if special else set()
        known = [other for name in types for other in self.by_name.get(name, ())]
        return not known or any(other in found for other in known)


def _operators(item: Item) -> list[str]:
    if not function(item) or not {"DoubleWord", "Promoted", "X"} & item.words:
        return []
    return [f"operator{sign}" for sign in sorted(set(OPERATORS.findall(item.text)))]
