"""Leases for threads: ``connect`` and what it returns."""

from __future__ import annotations

import functools
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ._address import parse
from ._clock import Clock, SystemClock
from ._duration import Duration, seconds
from ._engine import AcquireRequest, Engine, Options
from ._errors import LeaseError
from ._held import CLOCK_ERROR, Held
from ._runner import Runner, result

P = ParamSpec("P")
R = TypeVar("R")


class Lease:
    """A lease in hand. Leave its ``with`` block, or call ``release``, to give it back.

    >>> with leases.request("jobs/nightly", ttl=30) as lease:
    ...     write(rows, fence=lease.token)
    ...     lease.assert_held()
    """

    def __init__(self, runner: Runner, held: Held) -> None:
        self._runner = runner
        self._held = held
        #: Set when the lease is over, for whatever reason.
        self.lost = threading.Event()
        held.on_end = self.lost.set
        if held.reason is not None:
            self.lost.set()

    @property
    def id(self) -> int:
        return self._held.id

    @property
    def resources(self) -> tuple[str, ...]:
        return self._held.resources

    @property
    def token(self) -> int:
        """The fencing token of the (first) resource: greater than that of every earlier grant. 0 for a lease on nothing."""
        return next(iter(self._held.tokens.values()), 0)

    @property
    def tokens(self) -> Mapping[str, int]:
        return dict(self._held.tokens)

    @property
    def held(self) -> bool:
        """Asks the clocks: right even after this process was stopped."""
        return self._held.held

    def remaining(self) -> float:
        """Seconds of validity left unless renewed; 0 when it is over."""
        return self._held.remaining()

    def assert_held(self) -> None:
        """Raises ``LeaseLost`` (or ``GONE`` after a release) unless the lease is held now."""
        if not self._held.held:
            raise self._held.end_reason()

    def on_lost(self, callback: Callable[[LeaseError], None]) -> None:
        """Calls ``callback`` with the reason once the lease is lost, on the client's thread. At once if it is lost already."""

        def add(engine: Engine) -> None:
            if self._held.reason is None:
                self._held.callbacks.append(callback)
            else:
                reason = self._held.reason
                engine.later(lambda: callback(reason))

        self._runner.do(add)

    def put(self, key: str, value: str) -> None:
        """Attaches an entry that vanishes with the lease."""
        result(self._runner.do(lambda engine: engine.call("LEASE.PUT", self.id, key, value, "OP", engine.operation(), repeatable=True)))

    def release(self) -> None:
        """Gives it back. Releasing twice, or after a loss, is harmless."""
        if self._held.reason is not None:
            return
        try:
            result(self._runner.do(lambda engine: engine.release(self._held)))
        except LeaseError as error:
            if error.code not in ("GONE", "UNAVAILABLE", "UNKNOWN"):
                raise

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Lease {self.id} on {self._held.name}{'' if self.held else ', over'}>"


class Leases:
    """A connection to a server, and the leases of this process. Close it, or use it as a context manager."""

    def __init__(self, engine: Engine, runner: Runner, ttl: float) -> None:
        self._engine = engine
        self._runner = runner
        self._ttl = ttl

    @property
    def holder(self) -> str:
        return self._engine.options.holder

    @property
    def stats(self) -> Mapping[str, int]:
        return dict(self._engine.stats, leases=len(self._engine.held))

    def acquire(
        self,
        names: str | Iterable[str],
        *,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        mode: str = "exclusive",
        units: int | None = None,
        priority: int | None = None,
        parent: Lease | int | None = None,
        labels: Mapping[str, str] | None = None,
        entries: Mapping[str, str] | None = None,
        grace: Duration | None = None,
        max_life: Duration | None = None,
        on_wait: Callable[[int], None] | None = None,
    ) -> Lease:
        """All of the names, or none. Waits until granted, or for ``wait``; then raises ``TIMEOUT``."""
        limit = float("inf") if wait is None else seconds(wait, "wait")
        if limit == 0:
            raise LeaseError("INVALID", "wait must be greater than 0: use try_acquire to not wait", {"option": "wait"})
        request = self._request(names, ttl, limit, mode, units, priority, parent, labels, entries, grace, max_life, on_wait)
        return self._obtain(request)

    def try_acquire(
        self,
        names: str | Iterable[str],
        *,
        ttl: Duration | None = None,
        mode: str = "exclusive",
        units: int | None = None,
        parent: Lease | int | None = None,
        labels: Mapping[str, str] | None = None,
        entries: Mapping[str, str] | None = None,
    ) -> Lease | None:
        """``None`` when another holder has it. That is an answer, not an error."""
        try:
            return self._obtain(self._request(names, ttl, None, mode, units, None, parent, labels, entries, None, None, None))
        except LeaseError as error:
            if error.code == "HELD":
                return None
            raise

    @contextmanager
    def request(self, names: str | Iterable[str], **options: Any) -> Iterator[Lease]:
        """``acquire`` for a ``with`` block. Raises ``LOST`` at its end when the lease was lost and the block did not look."""
        with self.acquire(names, **options) as lease:
            yield lease
            if not lease.held:
                raise lease._held.end_reason()

    def exclusive(self, names: str | Iterable[str], **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function runs under the lease, one call at a time everywhere."""

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(function)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.request(names, **options):
                    return function(*args, **kwargs)

            return wrapper

        return decorate

    def _request(
        self,
        names: str | Iterable[str],
        ttl: Duration | None,
        wait: float | None,
        mode: str,
        units: int | None,
        priority: int | None,
        parent: Lease | int | None,
        labels: Mapping[str, str] | None,
        entries: Mapping[str, str] | None,
        grace: Duration | None,
        max_life: Duration | None,
        on_wait: Callable[[int], None] | None,
    ) -> AcquireRequest:
        named = (names,) if isinstance(names, str) else tuple(names)
        if not named:
            raise LeaseError("INVALID", "no resource is named")
        if mode not in ("exclusive", "shared"):
            raise LeaseError("INVALID", f"mode must be 'exclusive' or 'shared', not {mode!r}", {"option": "mode"})
        return AcquireRequest(
            named,
            self._ttl if ttl is None else seconds(ttl, "ttl"),
            wait=wait,
            mode=mode,
            units=units,
            priority=priority,
            parent=parent.id if isinstance(parent, Lease) else parent,
            labels=dict(labels or {}),
            entries=dict(entries or {}),
            grace=None if grace is None else seconds(grace, "grace"),
            max_life=None if max_life is None else seconds(max_life, "max_life"),
            on_wait=on_wait,
        )

    def _obtain(self, request: AcquireRequest) -> Lease:
        future = self._runner.do(lambda engine: engine.acquire(request))
        try:
            held = result(future)
        except BaseException:
            self._runner.post(lambda engine: engine.cancel(future))
            raise
        return Lease(self._runner, held)

    def close(self) -> None:
        """Gives back what is held, ends what waits, and closes the connection."""
        self._runner.close()

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
    clock: Clock | None = None,
) -> Leases:
    """Leases of a server: ``leasehold://host:7420``, by default that of ``LEASEHOLD_URL`` or of this machine.

    Connects in the background: a server that cannot be reached is reported by the first call, with what was tried.
    """
    addresses, key = parse(url, tls)
    name = holder or os.environ.get("LEASEHOLD_HOLDER") or f"{socket.gethostname()}:{os.getpid()}"
    used = clock or SystemClock()
    engine = Engine(Options(name, api_key or key, clock_error, len(addresses)), used)
    return Leases(engine, Runner(engine, addresses, used), seconds(ttl, "ttl"))
