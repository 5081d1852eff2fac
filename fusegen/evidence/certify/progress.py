"""The receivers of the progress of a certification."""

from collections.abc import Callable
from typing import Protocol

InputsDone = Callable[[int], None]  # called with the number of inputs done since the last call


class CertifyProgress(Protocol):
    """Receives the progress of a certification, spec by spec and dtype by dtype."""

    def begin(self, title: str, inputs: int) -> None:
        """The start of a dtype of a spec, and its number of inputs."""

    def advance(self, inputs: int) -> None:
        """The number of inputs that were done since the last call."""


class Unwatched:
    """Drops the progress of a certification."""

    def begin(self, title: str, inputs: int) -> None:
        """Do nothing."""

    def advance(self, inputs: int) -> None:
        """Do nothing."""
