"""Code that waits, written once for threads and for asyncio.

A flow is a generator that yields futures of the engine and is sent their results. ``run`` drives it on the caller's thread,
``leasehold_client.aio`` in an event loop. Errors of a future, an interrupt and a cancellation are raised at its ``yield``, so cleanup is an
ordinary ``finally``. Instead of a future it may yield an ``Ask``, which is begun and waited for in one step: that is the faster way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._future import Future

if TYPE_CHECKING:
    from ._engine import Engine
    from ._owner import Owner

T = TypeVar("T")


class Ask(Generic[T]):
    """A request to an engine that its caller will wait for: ``begin`` makes it, and returns its future."""

    __slots__ = ("begin", "owner")

    def __init__(self, owner: Owner, begin: Callable[[Engine], Future[T]]) -> None:
        self.owner = owner
        self.begin = begin


Flow = Generator["Future[Any] | Ask[Any]", Any, T]


def run(flow: Flow[T], wait: Callable[[Future[Any] | Ask[Any]], Any]) -> T:
    """Drives a flow on this thread; ``wait`` blocks until a future is done."""
    try:
        future = next(flow)
        while True:
            try:
                value = wait(future)
            except BaseException as error:
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result
