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
from ._errors import LeaseError
from ._flow import Flow, run
from ._handle import LeaseHandle
from ._held import CLOCK_ERROR, Held

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Unpack

    from ._watching import Watching
    from .election import Election
    from .pool import Pool
    from .registry import Registry
    from .session import Session

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
        run(self._core.release(self._held), self._core.owner.wait)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._core.owner.foreign:
            return  # a forked child leaves the block of its parent
        try:
            self.release()
        except LeaseError as failure:
            # Not delivered: it lapses by itself. What the block raised, or returned, matters more.
            if failure.code not in ("UNKNOWN", "UNAVAILABLE"):
                raise


class Leases:
    """A connection to a server, and the leases of this process. Close it, or use it as a context manager.

    All methods may be called from any thread. One thread of the client renews all leases, in batches.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._registry: Registry | None = None

    def _run(self, flow: Flow[T]) -> T:
        return run(flow, self._core.owner.wait)

    def _in_hand(self, flow: Flow[Held]) -> Lease:
        return self._run(self._core.in_hand(flow, Lease))

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
        return self._in_hand(self._core.obtain(self._core.asked("acquire", names, options, True)))

    def try_acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease | None:
        """``None`` when another holder has it. That is an answer, not an error."""
        return self._run(self._core.try_obtain(self._core.asked("try_acquire", names, options, False), Lease))

    @contextmanager
    def request(self, names: Names, **options: Unpack[AcquireOptions]) -> Iterator[Lease]:
        """``acquire`` for a ``with`` block. Raises ``LeaseLost`` at its end when the lease was lost and the block was not told.

        >>> with leases.request("jobs/nightly", ttl=30, wait=300) as lease:
        ...     write(rows, fence=lease.token)
        """
        with self.acquire(names, **options) as lease:
            yield lease
            lost = self._core.unreported_loss(lease._held)
            if lost is not None:
                raise lost

    def exclusive(self, names: Names, **options: Unpack[AcquireOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function runs under the lease, one call at a time everywhere.

        >>> @leases.exclusive("reports/nightly", wait=60)
        ... def report() -> None: ...
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.request(names, **options):
                    return function(*args, **kwargs)

            return wrapper

        return decorate

    def grant(self, **options: Unpack[AcquireOptions]) -> Lease:
        """A lease on no resource, for entries and for leases that belong to it."""
        return self._in_hand(self._core.obtain(self._core.asked("grant", None, options, False)))

    def adopt(self, lease: int, *, renew: str = "half", max_hold: Duration | None = None) -> Lease:
        """Takes over a lease that ``transfer`` passed on to the name of this holder, by the number that ``transfer`` returned.

        Of several processes with that name, one gets it; the others are refused with ``HELD``. A process that waits for the resource under
        that name gets it by itself.

        >>> lease = leases.adopt(number)   # the process that starts anew goes on where the former one stopped
        """
        return self._in_hand(self._core.adopt(lease, renew, max_hold))

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
        """The last holders of a resource, and how each lease ended."""
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

    >>> with leasehold.connect("leasehold://127.0.0.1:7420", holder="reporter") as leases:
    ...     leases.try_acquire("jobs/nightly")
    """
    from ._open import open_core

    return Leases(open_core(url, holder, api_key, ttl, tls, clock_error, incarnation))
