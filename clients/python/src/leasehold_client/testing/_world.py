"""Clients and a stand-in for a server in one thread, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._core import Core
from .._duration import Duration, seconds
from .._engine import Engine, Options
from .._errors import LeaseError
from .._flow import Ask
from .._future import Future
from .._runner import run_callback
from .._sync import Leases
from ._clock import ManualClock
from ._connection import Connection
from ._server import MemoryServer

if TYPE_CHECKING:
    from .. import aio

T = TypeVar("T")

#: A call that waits longer than this in virtual time would wait for ever.
MAX_WAIT = 7 * 86_400.0
WAITS_FOR_EVER = "this call would wait for ever: nothing that is still to happen in this world can end it"
#: Turns of an event loop between two moments.
LOOP_TURNS = 20


class VirtualOwner:
    """Drives an engine by hand. Its ``wait`` lets virtual time pass until the future is done."""

    foreign = False

    def __init__(self, world: World, engine: Engine) -> None:
        self._world = world
        self.engine = engine
        self.connection: Connection | None = None
        self.unread = bytearray()
        #: As ``stop_answering`` and ``lose_answers`` of the world, for this client alone.
        self.silent = False
        self.losing = False

    def do(self, work: Callable[[Engine], T]) -> T:
        result = work(self.engine)
        self._world.settle()
        return result

    def post(self, work: Callable[[Engine], Any]) -> None:
        if not self.engine.closed:
            work(self.engine)
            self._world.settle()

    def wait(self, awaited: Future[T] | Ask[T]) -> T:
        future = awaited if isinstance(awaited, Future) else self.do(awaited.begin)
        if self._world.settling and not future.done():
            raise RuntimeError(
                "a callback cannot wait in a World, whose time stands still meanwhile: note what happened, and act in the test"
            )
        self._world.run_until(future.done)
        return future.result()

    def close(self) -> None:
        answers = self.engine.close()
        self._world.run(self._world.clock.read().monotonic + 1.0, lambda: all(answer.done() for answer in answers))
        self.engine.end()
        self.cut()

    def cut(self, error: LeaseError | None = None) -> None:
        """The connection breaks."""
        connection, self.connection = self.connection, None
        self.unread.clear()
        if connection is not None:
            connection.close()
            self.engine.disconnected(error or LeaseError("UNAVAILABLE", "the connection broke"))

    def step(self) -> bool:
        """Moves bytes and callbacks. Returns whether anything happened."""
        engine, world = self.engine, self._world
        if engine.drop is not None:
            self.cut(engine.drop)
        if self.connection is None and engine.wants_connection:
            if world.reachable:
                self.connection = world.server.connect()
                engine.connected()
            else:
                engine.disconnected(LeaseError("UNAVAILABLE", "the test's server cannot be reached"))
            return True
        moved = False
        silent, losing = world.silent or self.silent, world.losing or self.losing
        if self.connection is not None:
            self.unread += engine.take_sends()
            if self.unread and not silent:
                data = bytes(self.unread)
                self.unread.clear()
                self.connection.received(data)
                moved = True
            if self.connection.out and not silent and not losing:
                data = bytes(self.connection.out)
                self.connection.out.clear()
                engine.received(data)
                moved = True
        calls = engine.take_calls()
        for call in calls:
            run_callback(call)
        engine.calls_done()
        return moved or bool(calls)


class World:
    """Everything a test of code that holds leases needs. Nothing sleeps, and the worst case happens when the test says so.

    >>> world = World()
    >>> leases = world.connect()
    >>> lease = leases.acquire("jobs/nightly", ttl=10)
    >>> world.stop_answering()
    >>> world.advance(9); lease.held
    True
    >>> world.advance(1); lease.held
    False
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self._owners: list[VirtualOwner] = []
        self.silent = False
        self.losing = False
        self.reachable = True
        self.settling = False

    def connect(self, holder: str = "test", *, ttl: Duration = 30, clock_error: float = 0.005, incarnation: int | None = None) -> Leases:
        """Leases of this world: the same class as ``leasehold_client.connect`` returns."""
        return Leases(self.core(holder, ttl=ttl, clock_error=clock_error, incarnation=incarnation))

    def connect_async(
        self, holder: str = "test", *, ttl: Duration = 30, clock_error: float = 0.005, incarnation: int | None = None
    ) -> aio.Leases:
        """As ``connect``, for asyncio. Time passes only in ``advance_async`` and ``until``."""
        from ..aio import Leases  # only where it is used: it loads asyncio

        return Leases(self.core(holder, ttl=ttl, clock_error=clock_error, incarnation=incarnation))

    def core(self, holder: str, *, ttl: Duration = 30, clock_error: float = 0.005, incarnation: int | None = None) -> Core:
        engine = Engine(Options(holder, None, clock_error, 1, incarnation), self.clock)
        owner = VirtualOwner(self, engine)
        self._owners.append(owner)
        return Core(engine, owner, seconds(ttl, "ttl"))

    # Faults

    def stop_answering(self) -> None:
        """What is asked from here on is carried out only after ``answer``."""
        self.silent = True

    def lose_answers(self) -> None:
        """What is asked from here on is carried out, and its answer comes after ``answer``."""
        self.losing = True

    def answer(self) -> None:
        """The server answers again, also what was asked meanwhile on connections that are still there."""
        self.silent = self.losing = False
        for owner in self._owners:
            owner.silent = owner.losing = False
        self.settle()

    def cut(self) -> None:
        """All connections break. Clients come back by themselves."""
        for owner in self._owners:
            owner.cut()
        self.settle()

    def unreachable(self) -> None:
        """All connections break, and no new one can be made until ``reach``."""
        self.reachable = False
        self.cut()

    def reach(self) -> None:
        self.reachable = True
        self.settle()

    # Time

    def advance(self, seconds: float) -> None:
        """Moves time on; what falls due on the way happens at its own moment."""
        self.run(self.clock.read().monotonic + seconds)

    async def advance_async(self, seconds: float) -> None:
        """As ``advance``: tasks of this event loop go on at each moment at which something happens."""
        end = self.clock.read().monotonic + seconds
        await self._let_tasks_run()
        while self._step(end):
            await self._let_tasks_run()
        await self._let_tasks_run()

    async def until(self, awaited: Awaitable[T]) -> T:
        """Lets time pass until ``awaited`` is done. Raises when nothing that is still to come in this world could bring that about.

        >>> lease = await world.until(leases.acquire("jobs/nightly", wait=60))
        """
        import asyncio

        task = asyncio.ensure_future(awaited)
        end = self.clock.read().monotonic + MAX_WAIT
        try:
            await self._let_tasks_run()
            while not task.done():
                if self._next() is None or self.clock.read().monotonic >= end:
                    raise RuntimeError(WAITS_FOR_EVER)
                self._step(end)
                await self._let_tasks_run()
            return await task
        finally:
            task.cancel()

    async def _let_tasks_run(self) -> None:
        """A result takes a few turns of the loop to the task that waits for it: callbacks, waiters and what gathers them."""
        import asyncio

        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)

    def stall(self, seconds: float) -> None:
        """This process stands still, stopped or blocked: time goes on, the server lives, and no timer of a client fires."""
        self.clock.move(seconds)
        self.server.tick()
        self.settle()
        self._tick()

    def suspend(self, seconds: float) -> None:
        """This machine sleeps: its monotonic clock and timers stand still, everyone else's time goes on."""
        self.clock.sleep_machine(seconds)
        self.server.tick()
        self.settle()
        self._tick()

    def run_until(self, done: Callable[[], bool]) -> None:
        """Lets time pass until ``done``. Raises when nothing that is still to come could bring that about."""
        self.settle()
        if not done():
            end = self.clock.read().monotonic + MAX_WAIT
            while not done() and self._next() is not None and self.clock.read().monotonic < end:
                self.run(min(end, self._next() or end), done)
            if not done():
                raise RuntimeError(WAITS_FOR_EVER)

    def settle(self) -> None:
        """Moves bytes until nothing is left to do at this moment."""
        if self.settling:
            return
        self.settling = True
        try:
            while any([owner.step() for owner in self._owners]):
                pass
        finally:
            self.settling = False

    def _tick(self) -> None:
        for owner in list(self._owners):
            owner.engine.tick()
        self.settle()

    def run(self, end: float, done: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass until ``end``, or until ``done``."""
        self.settle()
        while not done() and self._step(end):
            pass

    def _step(self, end: float) -> bool:
        """On to the next moment at which something happens, or to ``end``: then False."""
        self.settle()
        moment = self._next()
        if moment is None or moment > end:
            self.clock.move_to(end)
            self.settle()
            self._tick()
            return False
        self.clock.move_to(moment)
        self.server.tick()
        self.settle()
        self._tick()
        return True

    def _next(self) -> float | None:
        times = [owner.engine.next_time() for owner in self._owners]
        lapse = self.server.next_time()
        now = self.clock.read()
        if lapse is not None:
            times.append(max(now.monotonic, lapse - (now.boottime - now.monotonic)))
        return min((time for time in times if time is not None), default=None)
