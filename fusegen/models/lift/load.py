"""The user's file, executed: its model, its inputs and the arguments of its constructor."""

import ast
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from fusegen.errors import FusegenError, NotAModel, Span, nearest
from fusegen.models.lift.untraced import in_words

FUNCTIONS = ("get_inputs", "get_init_inputs")
STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
FORM = "give FILE.py:Model, a class of torch.nn.Module in a file that has get_inputs and get_init_inputs"


@dataclass(frozen=True)
class Problem:
    """A model with its inputs."""

    path: Path  # the file
    attribute: str  # the name of the class
    model: type[nn.Module]  # the class
    # get_inputs, get_init_inputs: of the file
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]

    @property
    def source(self) -> str:
        """The file and the class, as the spec names its source."""
        return f"{self.path.name}:{self.attribute}"

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments in order, as get_init_inputs and the defaults give them.

        Raises:
            NotAModel: the constructor takes any number of arguments, or others.
        """
        found = self.call(self.get_init_inputs, "get_init_inputs")
        own = self.model.__init__ is not nn.Module.__init__
        signature = inspect.signature(self.model) if own else inspect.Signature()
        refuse_variadic(self, signature, "the constructor")
        try:
            bound = signature.bind(*found)
        except (TypeError, ValueError) as error:
            self.refuse(f"the constructor does not take what get_init_inputs returns: {error}")
        bound.apply_defaults()
        return dict(bound.arguments)

    def given(self, arguments: Mapping[str, Any]) -> "Problem":
        """Return the problem with other values of all of the constructor's arguments."""
        return replace(self, get_init_inputs=partial(list, arguments.values()))

    def call(self, function: Callable[[], Any], name: str) -> Any:
        """Return the list that a function of the file returns.

        Raises:
            NotAModel: it raises, or returns something else.
        """
        with telling(self.path, f"{name}() raises"):
            found = function()
        if not isinstance(found, list | tuple):
            self.refuse(f"{name}() returns {type(found).__name__}, where a list of arguments is needed")
        return found

    def refuse(self, why: str, remedy: str = FORM) -> NoReturn:
        """Refuse the model at the line of its class."""
        line = getattr(inspect.unwrap(self.model), "__firstlineno__", 0) or class_line(self)
        raise NotAModel(line_span(self.path, line), why=why, remedy=remedy)


def read(target: str) -> tuple[Path, str, ast.Module]:
    """Return the file, the attribute and the tree that ``FILE.py:Model`` means.

    Raises:
        NotAModel: there is none, or it is not Python.
    """
    file, _, attribute = target.rpartition(":")
    path = Path(file)
    if not file or not attribute.isidentifier():
        raise NotAModel(Span(target), why="it names no file and class", remedy=FORM)
    try:
        text = path.read_text(encoding="utf-8")
        linecache.checkcache(str(path))
        return path, attribute, ast.parse(text)
    except FileNotFoundError:
        raise NotAModel(Span(file), why="there is no such file", remedy=FORM) from None
    except SyntaxError as error:
        span = line_span(path, error.lineno or 1)
        raise NotAModel(span, why=f"the file is not Python: {error.msg}", remedy="correct it") from None
    except ValueError as error:
        raise NotAModel(Span(file), why=f"the file is not text: {error}", remedy=FORM) from None


def executed(path: Path, attribute: str, tree: ast.Module) -> Problem:
    """Return the problem of a file after its code ran.

    Raises:
        NotAModel: the code fails, or lacks a definition.
    """
    own = executed_names(path, tree)
    model = _defined(path, own, attribute)
    if not (isinstance(model, type) and issubclass(model, nn.Module)):
        raise NotAModel(Span(str(path)), why=f"{attribute} is no class of torch.nn.Module", remedy=FORM)
    functions = [_defined(path, own, name) for name in FUNCTIONS]
    return Problem(path, attribute, model, *functions)


def executed_names(path: Path, tree: ast.Module) -> dict[str, Any]:
    """Return the names that a file defines after its code ran.

    Raises:
        NotAModel: the code fails.
    """
    own: dict[str, Any] = {"__name__": f"lifted_{path.stem}", "__file__": str(path)}
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as Python has it for a script; a function of the file may import later
        sys.path.insert(0, folder)
    with telling(path, "importing the file raises"):
        exec(compile(tree, str(path), "exec"), own)
    return own


class telling:  # read as a verb
    """Turns an exception of the user's code into a sentence with the line that raised it."""

    def __init__(self, path: Path, what: str, remedy: str = "make it run by itself first") -> None:
        self.path, self.what, self.remedy = path, what, remedy

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Translate.

        Raises:
            NotAModel: in place of an exception.
        """
        if error is None or isinstance(error, KeyboardInterrupt | GeneratorExit | FusegenError):
            return
        frames = [frame for frame in traceback.extract_tb(trace) if frame.filename == str(self.path)]
        lines = [frame.lineno or 0 for frame in frames]
        span = line_span(self.path, lines[-1] if lines else 0)
        first = (str(error).splitlines() or [""])[0]
        why = f"{self.what} {type(error).__name__}" + f": {first}" * bool(first)
        if in_words(error) and self.what.endswith("it raises"):
            why = self.what.removesuffix("it raises") + in_words(error)
        raise NotAModel(span, why=why, remedy=self.remedy) from None


def refuse_variadic(problem: Problem, signature: inspect.Signature, what: str) -> None:
    """Refuse arguments whose number or names are open.

    Raises:
        NotAModel: there are some.
    """
    for parameter in signature.parameters.values():
        stars = STARS.get(parameter.kind.name)
        if stars:
            problem.refuse(
                f"{what} takes {stars}{parameter.name}, and a spec names its arguments",
                "name the arguments",
            )
        if parameter.kind is parameter.KEYWORD_ONLY:
            problem.refuse(f"{what} takes {parameter.name} by name only", "take it by place, too")


def line_span(path: Path, line: int) -> Span:
    """Return the place of a line of a file, at its first character; the file where there is no line."""
    text = linecache.getline(str(path), line).rstrip("\n") if line else ""
    return Span(str(path), line, len(text) - len(text.lstrip()) + 1, text) if line else Span(str(path))


def class_line(problem: Problem) -> int:
    """Return the line of the class; 0 where it is made elsewhere."""
    tree = ast.parse(problem.path.read_text(encoding="utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == problem.attribute)
    return next((node.lineno for node in found), 0)


def _defined(path: Path, own: dict[str, Any], name: str) -> Any:
    if name not in own:
        near = nearest(name, [known for known in own if not known.startswith("_")], FORM)
        raise NotAModel(Span(str(path)), why=f"the file defines no {name}", remedy=near)
    return own[name]
