"""Code that waits, written once for threads and for asyncio.

A flow is a generator that yields futures of the engine and is sent their results. ``run`` drives it on the caller's thread,
``leasehold.aio`` in an event loop. Errors of a future, an interrupt and a cancellation are raised at its ``yield``, so cleanup is an
ordinary ``finally``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ._future import Future

T = TypeVar("T")

Flow = Generator["Future[Any]", Any, T]


def run(flow: Flow[T], wait: Callable[[Future[Any]], Any]) -> T:
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
