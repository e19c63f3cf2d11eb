"""A lease in the hands of a coroutine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from types import TracebackType

from .._core import Core
from .._errors import LeaseError, LeaseLost
from .._handle import LeaseHandle
from .._held import Held
from .._nesting import enter_block, leave_block
from ._flow import LoopCall, outcome, run


class Lease(LeaseHandle):
    """A lease in hand. Leave its ``async with`` block, or ``await release()``, to give it back."""

    def __init__(self, core: Core, held: Held) -> None:
        super().__init__(core, held)
        self._when_over = LoopCall(self._set_lost)  # made here, on the loop's thread; the event may first be asked for on another

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is over, for whatever reason; ``reason`` tells which. A block that looks at it was told of a loss."""
        self._held.reported = True
        event: asyncio.Event | None = self.__dict__.get("_lost")
        if event is None:
            # Made when it is first asked for: most leases end without.
            event = self.__dict__.setdefault("_lost", asyncio.Event())
            self._held.when_over(self._when_over)
        return event

    def _set_lost(self) -> None:
        event: asyncio.Event = self.__dict__["_lost"]
        event.set()

    def on_lost(self, callback: Callable[[LeaseLost], None]) -> None:
        """Calls ``callback`` in this event loop with the reason once the lease is lost. At once if it is lost already."""
        loop = asyncio.get_running_loop()
        super().on_lost(lambda error: _call(loop, functools.partial(callback, error)))

    @functools.cached_property
    def recalled(self) -> asyncio.Event:
        """Set when another client asks the holders to release. The lease stays held: end the work soon, and release it."""
        event = asyncio.Event()
        self.on_recalled(lambda by: event.set())
        return event

    def on_jeopardy(self, callback: Callable[[float], None]) -> None:
        """Calls ``callback`` in this event loop with the seconds left each time the lease comes into jeopardy."""
        loop = asyncio.get_running_loop()
        super().on_jeopardy(lambda left: _call(loop, functools.partial(callback, left)))

    def on_recalled(self, callback: Callable[[str], None]) -> None:
        """Calls ``callback`` in this event loop with the name of the client that asks the holders to release."""
        loop = asyncio.get_running_loop()
        super().on_recalled(lambda by: _call(loop, functools.partial(callback, by)))

    async def put(self, key: str, value: str) -> None:
        """Sets an entry that others can read, and that is gone with the lease."""
        self._core.must_hold(self._held)
        await outcome(self._core.change("LEASE.PUT", self.id, key, value))

    async def delete(self, key: str) -> None:
        """Deletes an entry of this lease."""
        self._core.must_hold(self._held)
        await outcome(self._core.change("LEASE.DEL", key, "LEASE", self.id))

    async def transfer(self, to: str) -> int:
        """Passes it on to the holder named ``to``: end your work first. Returns the number of the new lease."""
        return await run(self._core.transfer(self._held, to))

    async def release(self) -> None:
        """Stops using it, then tells the server. Harmless when repeated, and after a loss."""
        try:
            await run(self._core.release(self._held))
        except LeaseError:
            raise
        except BaseException:
            # Cancelled, perhaps before it was sent.
            self._core.owner.post(lambda engine: engine.release(self._held))
            raise

    async def __aenter__(self) -> Lease:
        enter_block(self._core, self._held)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        leave_block(self._held)
        if self._core.owner.foreign:
            return
        try:
            await self.release()
        except LeaseError as failure:
            # Not delivered: it lapses by itself. What the block raised, or returned, matters more.
            if failure.code not in ("UNKNOWN", "UNAVAILABLE"):
                raise


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
