"""Drives flows in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from .._flow import Ask, Flow
from .._future import Future
from .._runner import Runner

T = TypeVar("T")


async def run(flow: Flow[T]) -> T:
    """As ``leasehold_client._flow.run``; a cancellation of the task is raised at the flow's ``yield``."""
    try:
        future = next(flow)
        while True:
            try:
                value = await outcome(future)
            except BaseException as error:
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def outcome(awaited: Future[T] | Ask[T]) -> T:
    """Waits for a future of the engine. A caller that is cancelled cancels it: what comes then is for the next caller that asks."""
    loop = asyncio.get_running_loop()
    if isinstance(awaited, Future):
        future = awaited
    elif isinstance(awaited.owner, Runner):
        future = awaited.owner.begin_in_loop(awaited.begin, loop)
    else:
        future = awaited.owner.do(awaited.begin)
    if not future.done():
        waiter: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(LoopCall(lambda: None if waiter.done() else waiter.set_result(None)))
        try:
            await waiter
        except BaseException:
            future.cancel()
            raise
    return future.result()


class LoopCall:
    """Calls something in the loop, from any thread, unless the loop is closed: at once on the loop's own thread, where it is made."""

    __slots__ = ("_call", "_loop", "_thread")

    def __init__(self, call: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._call = call

    def __call__(self, _: object = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there any more
            if threading.get_ident() == self._thread:
                self._call()
            else:
                self._loop.call_soon_threadsafe(self._call)
