"""Leases for threads: ``connect`` and what it returns."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ._core import AcquireOptions, Core, Names
from ._duration import Duration
from ._errors import Held as Busy
from ._errors import LeaseError
from ._exclusive import check_done, runs_as_coroutine
from ._flow import Flow, run
from ._handle import LeaseHandle
from ._held import CLOCK_ERROR, Held
from ._nesting import enter_block, leave_block

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Unpack

    from ._watching import Watching
    from .cache import Cache, CacheLease
    from .election import Election
    from .pool import Pool
    from .registry import Registry
    from .semaphore import Semaphore
    from .session import Session
    from .shards import Shards
    from .slots import Slot

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Lease(LeaseHandle):
    """A lease in hand. Leave its ``with`` block, or call ``release``, to give it back.

    >>> with leases.request("jobs/nightly", ttl=30) as lease:
    ...     write(rows, fence=lease.token)
    ...     lease.assert_held()
    """

    @property
    def lost(self) -> threading.Event:
        """Set when the lease is over, for whatever reason; ``reason`` tells which. A block that looks at it was told of a loss."""
        self._held.reported = True
        event: threading.Event | None = self.__dict__.get("_lost")
        if event is None:
            # Made when it is first asked for: most leases end without. Of several threads that ask at once, all get the same.
            event = self.__dict__.setdefault("_lost", threading.Event())
            self._held.when_over(event.set)
        return event

    @functools.cached_property
    def recalled(self) -> threading.Event:
        """Set when another client asks the holders to release. The lease stays held: end the work soon, and release it."""
        event = threading.Event()
        self.on_recalled(lambda by: event.set())
        return event

    def put(self, key: str, value: str) -> None:
        """Sets an entry that others can read, and that is gone with the lease."""
        self._core.must_hold(self._held)
        self._core.owner.wait(self._core.change("LEASE.PUT", self.id, key, value))

    def delete(self, key: str) -> None:
        """Deletes an entry of this lease."""
        self._core.must_hold(self._held)
        self._core.owner.wait(self._core.change("LEASE.DEL", key, "LEASE", self.id))

    def transfer(self, to: str) -> int:
        """Passes it on to the holder named ``to``: end your work first. Returns the number of the new lease."""
        return run(self._core.transfer(self._held, to), self._core.owner.wait)

    def release(self) -> None:
        """Stops using it, then tells the server. Harmless when repeated, and after a loss.

        Raises ``UNKNOWN`` when the server does not answer: then the lease lapses by itself.
        """
        try:
            run(self._core.release(self._held), self._core.owner.wait)
        except BaseException as error:
            self._interrupted(error)
            raise

    def _interrupted(self, error: BaseException) -> None:
        """An interrupt may have come before the release was sent, and the code that catches it does not know of the lease."""
        if not isinstance(error, LeaseError) and not self._core.owner.foreign:
            self._core.owner.post(lambda engine: engine.release(self._held))

    def __enter__(self) -> Lease:
        try:
            enter_block(self._core, self._held)
        except BaseException as error:
            self._interrupted(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            leave_block(self._held)
            if self._core.owner.foreign:
                return  # a forked child leaves the block of its parent
            self.release()
        except LeaseError as failure:
            # Not delivered: it lapses by itself. What the block raised, or returned, matters more.
            if failure.code not in ("UNKNOWN", "UNAVAILABLE"):
                raise
        except BaseException as error:
            self._interrupted(error)
            raise


class Request:
    """The ``with`` block of ``leases.request``. An interrupt leaves no lease behind, whenever it comes."""

    __slots__ = ("_begun", "_lease", "_leases", "_names", "_options")

    def __init__(self, leases: Leases, names: Names, options: AcquireOptions) -> None:
        self._leases = leases
        self._names = names
        self._options = options
        self._lease: Lease
        self._begun = False

    def __enter__(self) -> Lease:
        if self._begun:
            raise LeaseError("INVALID", "this block of request() has begun already: call request() for each block")
        core = self._leases._core
        granted: list[Held] = []
        try:
            lease = self._leases._in_hand(core.obtain(core.asked("request", self._names, self._options, True)), granted)
            self._lease = lease.__enter__()
            self._begun = True
        except BaseException:
            core.abandon(granted)
            raise
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lost: LeaseError | None = None
        try:
            self._begun = False
            if kind is None:
                lost = self._leases._core.unreported_loss(self._lease._held)
        finally:
            self._lease.__exit__(kind, error, trace)
        if lost is not None:
            raise lost


class Leases:
    """A connection to a server, and the leases of this process. Close it, or use it as a context manager.

    All methods may be called from any thread. One thread of the client renews all leases, in batches.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._registry: Registry | None = None

    def _run(self, flow: Flow[T]) -> T:
        return run(flow, self._core.owner.wait)

    def _in_hand(self, flow: Flow[Held], granted: list[Held]) -> Lease:
        """The caller gives ``granted`` back if it is interrupted, even between the end of this call and its own end."""
        return self._run(self._core.in_hand(flow, Lease, granted))

    @property
    def holder(self) -> str:
        """The name that others see: ``host:pid`` unless ``connect`` was given one."""
        return self._core.engine.options.holder

    @property
    def incarnation(self) -> int | None:
        """The number of this process under its holder's name: that of its first lease. Tells two processes of one name apart."""
        return self._core.engine.incarnation

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters since the start: messages, connections, renewals; and the leases that are held now."""
        engine = self._core.engine
        return {**engine.channel.stats, **engine.renewals.stats, "leases": len(engine.renewals.held)}

    # Acquiring

    def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """All of the names, or none. Waits until granted, also through outages, or for ``wait``; then raises ``TIMEOUT``.

        >>> with leases.acquire(["account/1", "account/2"], ttl=10, wait="1m") as lease:
        ...     move(lease.tokens)
        """
        granted: list[Held] = []
        try:
            return self._in_hand(self._core.obtain(self._core.asked("acquire", names, options, True)), granted)
        except BaseException:
            self._core.abandon(granted)
            raise

    def try_acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease | None:
        """``None`` when another holder has it. That is an answer, not an error."""
        granted: list[Held] = []
        try:
            return self._run(self._core.try_obtain(self._core.asked("try_acquire", names, options, False), Lease, granted))
        except BaseException:
            self._core.abandon(granted)
            raise

    def request(self, names: Names, **options: Unpack[AcquireOptions]) -> Request:
        """``acquire`` for a ``with`` block. Raises ``LeaseLost`` at its end when the lease was lost and the block was not told.

        >>> with leases.request("jobs/nightly", ttl=30, wait=300) as lease:
        ...     write(rows, fence=lease.token)
        """
        return Request(self, names, options)

    def exclusive(self, names: Names, **options: Unpack[AcquireOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function, or the coroutine of an ``async def``, runs under the lease, one call at a time everywhere.

        Generators are refused with ``INVALID``: they run after the call, when the lease is over.

        >>> @leases.exclusive("reports/nightly", wait=60)
        ... def report() -> None: ...
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if runs_as_coroutine(function):
                coroutine: Callable[P, R] = self._exclusive_coroutine(function, names, options)
                return coroutine

            @functools.wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.request(names, **options):
                    result = function(*args, **kwargs)
                    check_done(function, result)
                    return result

            return wrapper

        return decorate

    def _exclusive_coroutine(self, function: Any, names: Names, options: AcquireOptions) -> Any:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            from .aio._request import Request  # only where it is used: it loads asyncio

            async with Request(self._core, names, options):
                return await function(*args, **kwargs)

        return wrapper

    def grant(self, **options: Unpack[AcquireOptions]) -> Lease:
        """A lease on no resource, for entries and for leases that belong to it."""
        granted: list[Held] = []
        try:
            return self._in_hand(self._core.obtain(self._core.asked("grant", None, options, False)), granted)
        except BaseException:
            self._core.abandon(granted)
            raise

    def adopt(self, lease: int, *, renew: str = "half", max_hold: Duration | None = None) -> Lease:
        """Takes over a lease that ``transfer`` passed on to the name of this holder, by the number that ``transfer`` returned.

        Of several processes with that name, one gets it; the others are refused with ``HELD``. A process that waits for the resource under
        that name gets it by itself.

        >>> lease = leases.adopt(number)   # the process that starts anew goes on where the former one stopped
        """
        granted: list[Held] = []
        try:
            return self._in_hand(self._core.adopt(lease, renew, max_hold), granted)
        except BaseException:
            self._core.abandon(granted)
            raise

    # Reading

    def show(self, resource: str) -> dict[str, Any]:
        """The holders and the waiters of a resource."""
        shown: dict[str, Any] = self._core.owner.wait(self._core.read("LEASE.SHOW", resource))
        return shown

    def entries(self, prefix: str = "") -> list[dict[str, Any]]:
        """The entries under a prefix, each with its lease and holder."""
        found: list[dict[str, Any]] = self._core.owner.wait(self._core.read("LEASE.ENTRIES", *([prefix] if prefix else [])))
        return found

    def history(self, resource: str) -> list[dict[str, Any]]:
        """The last holders of a resource, and how each lease ended; the latest one is the last."""
        past: list[dict[str, Any]] = self._core.owner.wait(self._core.read("LEASE.HISTORY", resource))
        return past

    def fence(self, resource: str, token: int) -> int:
        """Shows a token: the highest one so far, or ``STALE`` when a newer one was shown before."""
        future = self._core.do(lambda engine: engine.call("LEASE.FENCE", resource, token))
        highest: int = self._core.owner.wait(future)
        return highest

    @contextmanager
    def watch(self, prefix: str) -> Iterator[Iterator[list[dict[str, Any]]]]:
        """Every event under a prefix, one list per revision. An event ``resync`` says that some were missed: read anew.

        >>> with leases.watch("jobs") as events:
        ...     for revision in events:
        ...         print(revision[0]["type"], revision[0].get("resource"))
        """
        from ._watching import watch_flow

        watching = self._run(watch_flow(self._core, prefix))
        try:
            yield self._events(watching)
        finally:
            watching.close()

    def _events(self, watching: Watching) -> Iterator[list[dict[str, Any]]]:
        while (events := self._core.owner.wait(watching.next())) is not None:
            yield events

    def recall(self, resource: str) -> None:
        """Asks the holders of a resource to release it: ``lease.recalled`` is set there."""
        self._core.owner.wait(self._core.change("LEASE.RECALL", resource, "BY", self.holder))

    def break_(self, resource: str, *, after: Duration | None = None) -> None:
        """Ends the leases that hold a resource, at most ``after`` from now: their holders are told at once and have that long to finish.

        A second break can only shorten it. The resource goes to the next waiter when its holder has stopped, or its term has run.

        >>> leases.break_("deploy/prod", after="30s")
        """
        self._core.owner.wait(self._core.break_(resource, after, self.holder))

    def revoke(self, *, lease: int | None = None, holder: str | None = None, prefix: str | None = None, force: bool = False) -> None:
        """Ends leases of any holder: one of ``lease``, ``holder`` and ``prefix`` says which.

        Their resources stay frozen until the holders have stopped, or their terms have run. ``force`` does not wait for that.

        >>> leases.revoke(prefix="jobs")
        """
        self._core.owner.wait(self._core.revoke(lease, holder, prefix, force, self.holder))

    # Recipes

    def semaphore(self, name: str, **options: Unpack[AcquireOptions]) -> Semaphore:
        """At most so many permits of one name in use at once, by all processes together.

        ``permits`` must be given. A grant keeps to the smallest number that the holders and the request state.

        >>> with leases.semaphore("downloads", permits=3).request() as lease:
        ...     fetch_all(lease)
        """
        from .semaphore import Semaphore

        return Semaphore(self, name, options)

    def election(
        self, name: str, *, ttl: Duration = 10, priority: int = 0, budget: Duration | None = None, yields: bool = False
    ) -> Election:
        """One leader at a time. ``for term in leases.election("scheduler").terms(): lead(term)``.

        ``budget``: how long the work of a term may take to end once it was told to; then the leader leaves office anyway.
        ``yields``: whether a leader resigns when a candidate of higher ``priority`` waits.
        """
        from .election import Election

        return Election(self, name, ttl=ttl, priority=priority, budget=budget, yields=yields)

    def session(
        self,
        *,
        ttl: Duration = "20m",
        renew: str = "on-activity",
        labels: Mapping[str, str] | None = None,
        parent: Any = None,
        max_life: Duration | None = None,
    ) -> Session:
        """The presence of a user, an agent or a job. Leases, entries and sessions under it end with it."""
        from .session import Session

        return Session.begin_with(self, ttl=ttl, renew=renew, labels=labels, parent=parent, max_life=max_life)

    def slot(
        self, name: str, numbers: range, *, sticky: str | None = None, remember: Duration = "1d", **options: Unpack[AcquireOptions]
    ) -> Slot:
        """One number of a range for each holder, such as a port. Waits until one is free, or for ``wait``.

        ``sticky``: a name that stays the same over restarts, and gets the same number again if it is free. Without it, the lowest free
        number. ``remember``: how long after the last use.

        >>> with leases.slot("ports", range(3000, 3100), sticky="checkout-service") as slot:
        ...     server.listen(slot.number)
        """
        return self._slot(name, numbers, sticky, remember, options, True)

    def try_slot(
        self, name: str, numbers: range, *, sticky: str | None = None, remember: Duration = "1d", **options: Unpack[AcquireOptions]
    ) -> Slot | None:
        """As ``slot``, without waiting: ``None`` if no number is free."""
        try:
            return self._slot(name, numbers, sticky, remember, options, False)
        except Busy:
            return None

    def _slot(self, name: str, numbers: range, sticky: str | None, remember: Duration, options: AcquireOptions, waits: bool) -> Slot:
        from ._slots import take_slot
        from .slots import Slot

        granted: list[Held] = []
        try:
            number = self._run(take_slot(self._core, name, numbers, sticky, remember, options, waits, granted))
            return Slot(self._core, granted[0], number)
        except BaseException:
            self._core.abandon(granted)
            raise

    def cache(
        self,
        prefix: str,
        *,
        load: Callable[[str, CacheLease], T],
        save: Callable[[str, T, CacheLease], object] | None = None,
        ttl: Duration = "1m",
        most: int = 10_000,
    ) -> Cache[T]:
        """A cache that is never stale. ``load`` reads a value from its source, ``save`` writes it there for ``write``.

        ``ttl``: the term of a reader, by which a write waits for one that cannot be reached; ``"auto"`` chooses it from the rates of reads
        and writes. ``most``: how many values are kept; the least recently used one is dropped first.
        """
        from .cache import Cache

        return Cache(self, prefix, load=load, save=save, ttl=ttl, most=most)

    def shards(self, name: str, *, count: int, ttl: Duration = "10s", budget: Duration | None = None, member: str | None = None) -> Shards:
        """A fixed number of parts of a work, spread evenly over the processes that join.

        ``ttl``: after a crash, the shards of a member are assigned to others this much later. ``budget``: how long the work on a shard may
        take to end; no limit by default. ``member``: its name, that of the holder by default.
        """
        from .shards import Shards

        return Shards(self, name, count=count, ttl=ttl, budget=budget, member=member)

    def pool(self, name: str, *, match: Mapping[str, str] | None = None) -> Pool:
        """Members of which a caller takes as many as it needs: GPUs, licences, test machines."""
        from .pool import Pool

        return Pool(self, name, match=match)

    @property
    def registry(self) -> Registry:
        """Registers and discovers instances of services."""
        from .registry import Registry

        if self._registry is None:
            self._registry = Registry(self._core)
        return self._registry

    def close(self) -> None:
        """Gives back every lease, withdraws every wait, and closes the connection. Takes a second at most when no server answers."""
        self._core.owner.close()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def connect(
    url: str | None = None,
    *,
    holder: str | None = None,
    api_key: str | None = None,
    ttl: Duration = 30,
    tls: ssl.SSLContext | None = None,
    clock_error: float = CLOCK_ERROR,
    incarnation: int | None = None,
) -> Leases:
    """Leases of a server: ``leasehold://host:7420``, ``leasehold://a:7420,b:7420`` or, with TLS, ``leaseholds://…?ca=FILE``.

    By default that of ``LEASEHOLD_URL``, or of this machine. ``api_key`` is that of the URL, or ``LEASEHOLD_API_KEY``, by default.
    ``incarnation``: that of a former process of this holder, whose leases this one goes on with (``reuse``); a new one by default.
    Connects in the background: a server that cannot be reached is reported by the first call, with what was tried.

    >>> with leasehold_client.connect("leasehold://127.0.0.1:7420", holder="reporter") as leases:
    ...     leases.try_acquire("jobs/nightly")
    """
    from ._open import open_core

    return Leases(open_core(url, holder, api_key, ttl, tls, clock_error, incarnation))
