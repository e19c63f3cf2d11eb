"""Drives flows in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from .._flow import Flow

T = TypeVar("T")


async def run(flow: Flow[T]) -> T:
    """As ``leasehold._flow.run``; a cancellation of the task is raised at the flow's ``yield``."""
    try:
        future = next(flow)
        while True:
            try:
                value = await asyncio.wrap_future(future)
            except BaseException as error:
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


class LoopCall:
    """Calls something in the loop, from any thread, unless the loop is closed."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call

    def __call__(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there any more
            self._loop.call_soon_threadsafe(self._call)
