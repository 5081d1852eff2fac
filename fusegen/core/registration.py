"""The backend of torch.compile by its name, also in a checkout of fusegen that is not installed.

TorchDynamo looks for a name that it does not know among the entry points of installed packages, once. A
finder of packages gives it that of fusegen, which costs nothing before. Where dynamo has looked already,
the backend is registered.
"""

import sys
from collections.abc import Iterator
from typing import Any

NAME, GROUP, FUNCTION = "fusegen", "torch_dynamo_backends", "fusegen.models.backend:fusegen"
REGISTRY = "torch._dynamo.backends.registry"


class Finder:
    """Finds what an installed fusegen says of itself, where none is installed."""

    def __init__(self, version: str) -> None:
        """Keep the version."""
        self.version = version  # of fusegen

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Find no module."""

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Yield the package, if all packages or those of its name are asked for."""
        if vars(context).get("name") in (None, NAME) and "path" not in vars(context):
            others = (each for each in sys.meta_path if not isinstance(each, Finder))
            finders = (found for each in others if (found := getattr(each, "find_distributions", None)))
            named = type(context)(name=NAME)
            if not any(True for find in finders for _ in find(named)):
                yield self._package()

    def _package(self) -> Any:
        """Make the package."""
        from importlib.metadata import Distribution

        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {self.version}\n",
            "entry_points.txt": f"[{GROUP}]\n{NAME} = {FUNCTION}\n",
        }

        class Package(Distribution):
            """A package without files."""

            def read_text(self, filename: str) -> str | None:
                """Return the text of a file of metadata."""
                return files.get(filename)

            def locate_file(self, path: Any) -> Any:
                """Return the path."""
                return path

        return Package()


def register(version: str) -> None:
    """Let torch.compile know the backend; neither torch nor TorchDynamo is imported for it."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.append(Finder(version))
    registry = sys.modules.get(REGISTRY)
    put: Any = getattr(registry, "register_backend", None)
    if put is not None and NAME not in getattr(registry, "_COMPILER_FNS", ()):
        put(compiled, name=NAME)


def compiled(graph: Any, inputs: Any, **given: Any) -> Any:
    """Compile a graph as `fusegen.models.backend.fusegen` does, which is imported now."""
    from importlib.metadata import EntryPoint

    return EntryPoint(NAME, FUNCTION, GROUP).load()(graph, inputs, **given)
