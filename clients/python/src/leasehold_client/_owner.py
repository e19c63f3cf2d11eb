"""What drives an engine, as the handles see it: the runner of a program, or the virtual one of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from ._engine import Engine
    from ._flow import Ask
    from ._future import Future

T = TypeVar("T")


class Owner(Protocol):
    """What the handles need of whatever drives an engine."""

    def do(self, work: Callable[[Engine], T]) -> T:
        """Runs ``work`` with the engine, at once and on the caller's thread."""
        ...

    def post(self, work: Callable[[Engine], Any]) -> None:
        """As ``do``, from a place that must not raise or block: a finalizer, or a thread that is ending."""
        ...

    def wait(self, awaited: Future[T] | Ask[T]) -> T:
        """Blocks the caller until the future is done. That of an ``Ask`` is begun first."""
        ...

    def close(self) -> None: ...

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that made it."""
        ...
