"""The client without threads and sockets: requests, answers and time in; bytes, results and losses out.

A runner (``_runner.py``) drives it with real sockets and the system's clocks. The conformance driver and ``leasehold_client.testing``
drive it by hand, in virtual time. It is not thread-safe: its owner calls it from one thread at a time.

Rules that make a holder safe, each with the accident it prevents:

* A term is counted from before the request was sent (etcd, client-go: counted from the answer, so two hold it).
* A margin is given up at its end, since clocks run at different rates.
* A lease that was waited for is valid only after a renewal sent after the news of its grant (redlock 296).
* An answer never brings back a lease that a caller was told is over.
* A request that may have been carried out is repeated under the same operation id only (jetcd: done twice).
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ._acquire import Acquiring
from ._adopt import Adopting
from ._channel import ANSWER_TIMEOUT, Channel, Request
from ._clock import Clock
from ._duration import in_words
from ._errors import LeaseError, LeaseLost, closed_error
from ._future import Future
from ._held import CLOCK_ERROR, ClockWatch, Held
from ._log import INFO, WARNING, logger_for
from ._random import unique_name
from ._renewal import Renewals
from ._request import AcquireRequest
from ._timers import Timers
from ._watch import Watches

#: A release is repeated for this long, or for a term if that is shorter.
LONGEST_RELEASE = 5.0
#: While leases are held the clocks are read this often: a suspend is noticed no sooner.
PULSE = 0.25


class Options(NamedTuple):
    """What a client is configured with."""

    holder: str
    api_key: str | None = None
    clock_error: float = CLOCK_ERROR
    addresses: int = 1
    #: That of a former process, which this one goes on for.
    incarnation: int | None = None


class Engine:
    """See the module's comment. Its owner opens a connection when ``wants_connection``, and closes it when ``drop`` is set."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.timers = Timers()
        self.watch = ClockWatch(clock)
        self.channel = Channel(clock, self.timers, options.holder, options.api_key, options.addresses)
        self.renewals = Renewals(self, clock, self.timers, self.channel, self.watch, options.clock_error)
        self.watches = Watches(self.channel)
        self.queued: dict[int, Acquiring] = {}
        self._acquiring: dict[Future[Held], Acquiring | Adopting] = {}
        self._session = unique_name()
        self._operations = itertools.count(1)
        self._calls: list[Callable[[], None]] = []
        self._after_calls: list[Callable[[], Any]] = []
        #: Called when the client is closed; each returns what is still to be answered.
        self.closers: list[Callable[[], list[Future[Any]]]] = []
        self._slept = self._sleep()
        #: The number of this process under its holder's name: that of its first lease.
        self.incarnation: int | None = options.incarnation
        self._introducing: Acquiring | Adopting | None = None
        self._waiting_for_introduction: deque[Acquiring | Adopting] = deque()
        self.channel.on_ready = self._connection_made
        self.channel.on_down = self._connection_lost
        self.channel.on_push = self._pushed
        self.channel.shortest_term = self.renewals.shortest_term
        self.channel.listening = lambda: bool(self.queued or self.watches or self.renewals.held)

    # What the owner does

    @property
    def closed(self) -> bool:
        return self.channel.closed

    @property
    def wants_connection(self) -> bool:
        """Whether the owner should open a connection now."""
        return self.channel.wants_connection

    @property
    def ready(self) -> bool:
        """Whether requests are sent at once: there is a connection, and the server has greeted."""
        return self.channel.ready

    @property
    def drop(self) -> LeaseError | None:
        """Set when the owner must close the connection; the reason is passed to ``disconnected``."""
        return self.channel.drop

    def next_time(self, connecting: bool = False) -> float | None:
        """The monotonic moment at which ``tick`` has something to do. ``connecting``: an attempt to connect is under way."""
        moment = self.timers.next()
        other = None if connecting else self.channel.next_time()
        if other is not None and (moment is None or other < moment):
            moment = other
        if self.renewals.held:
            pulse = self.clock.read().monotonic + PULSE
            if moment is None or pulse < moment:
                return pulse
        return moment

    def take_sends(self) -> bytes:
        return self.channel.take()

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def take_calls(self) -> list[Callable[[], None]]:
        """Callbacks of the user, to be called outside of the engine; then call ``calls_done``."""
        calls, self._calls = self._calls, []
        return calls

    def calls_done(self) -> None:
        if not self._calls:
            after, self._after_calls = self._after_calls, []
            for work in after:
                work()

    def connected(self) -> None:
        self.channel.connected()

    def disconnected(self, error: LeaseError) -> None:
        self.channel.disconnected(error)

    def received(self, data: bytes) -> None:
        """Raises ``ProtocolError`` when the peer does not speak RESP: the owner closes the connection."""
        self.channel.received(data)

    def tick(self) -> None:
        """Does what is due. The owner passes on what the socket has before it calls this: after a stall, an answer may be waiting there."""
        now = self.clock.read()
        due = self.timers.next()
        if due is not None:
            self.renewals.note_stall(now.monotonic - due, now)
        self.look_at_clocks()
        self.timers.run(now.monotonic)
        self.channel.tick(now.monotonic)

    def _sleep(self) -> float:
        now = self.clock.read()
        return now.boottime - now.monotonic

    def look_at_clocks(self) -> None:
        """Notices that the machine slept, or that its wall clock jumped."""
        now = self.clock.read()
        if self.watch.jumped(now):
            self.watch.accept(now, self.channel.last_number)
            self.renewals.renew_all(inactive=True)
        else:
            self.watch.follow(now)
        slept, self._slept = self._sleep() - self._slept, self._sleep()
        if slept > 0.02:
            self.renewals.check_all()

    # Requests

    def operation(self) -> str:
        return f"{self._session}:{next(self._operations)}"

    def call(self, *words: str | int, kind: str = "change", timeout: float = ANSWER_TIMEOUT, again: bool = False) -> Future[Any]:
        """A request whose answer is wanted as a future."""
        future: Future[Any] = Future()

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self.channel.send(words, done, kind, timeout).again = again
        return future

    def read(self, *words: str | int) -> Future[Any]:
        return self.call(*words, kind="read")

    def change(self, *words: str | int) -> Future[Any]:
        """A change under an operation id."""
        return self.call(*words, "OP", self.operation())

    def sleep(self, seconds: float) -> Future[None]:
        future: Future[None] = Future()

        def wake() -> None:
            future.set_result(None)

        self.timers.at(self.clock.read().monotonic + seconds, wake)
        return future

    def later(self, call: Callable[[], None]) -> None:
        """A callback of the user."""
        self._calls.append(call)

    def log(self, level: int, text: str) -> None:
        """Handlers of records are the user's code, which must not run while the engine does."""
        logger = logger_for(level)
        if logger is not None:
            self.later(functools.partial(logger.log, level, "%s", text))

    # Leases

    def acquire(self, asked: AcquireRequest) -> Future[Held]:
        return self._begin(Acquiring(self, asked))

    def adopt(self, lease: int, renew: str, max_hold: float | None) -> Future[Held]:
        """Takes over a lease that was passed on to the name of this holder."""
        return self._begin(Adopting(self, lease, renew, max_hold))

    def _begin(self, acquiring: Acquiring | Adopting) -> Future[Held]:
        if self.closed:
            acquiring.close()
            return acquiring.future
        self._acquiring[acquiring.future] = acquiring
        if self.incarnation is not None:
            acquiring.begin()
        elif self._introducing is None:
            self._introducing = acquiring
            acquiring.begin()
        else:
            # The first lease of a process decides the incarnation of all that follow.
            self._waiting_for_introduction.append(acquiring)
        return acquiring.future

    def introduced(self, acquiring: Acquiring | Adopting, answer: Any) -> None:
        """The first request was answered, or failed."""
        if self.incarnation is None and isinstance(answer, dict) and isinstance(answer.get("lease"), int):
            self.incarnation = int(answer.get("incarnation") or answer["lease"])
        if self._introducing is not acquiring and self.incarnation is None:
            return
        self._introducing = None
        while self._waiting_for_introduction and self._introducing is None:
            following = self._waiting_for_introduction.popleft()
            if following.over:
                continue
            if self.incarnation is None:
                self._introducing = following
            following.begin()

    def ended(self, acquiring: Acquiring | Adopting) -> None:
        self._acquiring.pop(acquiring.future, None)

    def cancel(self, future: Future[Held]) -> None:
        """Its caller has gone. What was granted, or is granted meanwhile, is given back."""
        acquiring = self._acquiring.get(future)
        if acquiring is not None:
            acquiring.stop(None)
        elif future.done() and not future.cancelled() and future.exception() is None:
            self.abandon(future.result())

    def abandon(self, held: Held) -> None:
        """Its caller has gone before it had the lease. Another caller may have it too (``reuse``), and goes on with it."""
        if not held.shared:
            self.release(held)

    def release(self, held: Held) -> Future[Any]:
        """The holder stops first, and says so afterwards."""
        if held.reason is None and not held.ending:
            if held.over or held.deadline.passed(self.clock.read()):
                self.renewals.expire(held)
            else:
                self.renewals.end(held, "released")
                held.released = self.give_back(held.id, held.term)
        if held.released is None:
            held.released = Future()
            held.released.set_result(None)
        released: Future[Any] = held.released
        return released

    def give_back(self, lease: int, term: float, lost: str | None = None) -> Future[None]:
        """Repeated until it is answered. Without an answer, the lease lapses by itself. ``lost``: why the holder lost it."""
        future: Future[None] = Future()

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            if error is None or error.code == "GONE":
                future.set_result(None)
                return
            text = f"lease {lease} may not have been released: it lapses in at most {in_words(term)}"
            future.set_exception(LeaseError("UNKNOWN", f"{text} ({error.message})", {"lease": lease, "ttl": round(term * 1000)}))

        words: tuple[str | int, ...] = ("LEASE.RELEASE", lease) if lost is None else ("LEASE.RELEASE", lease, "LOST", lost)
        self.channel.send(words, done, timeout=max(0.1, min(LONGEST_RELEASE, term))).again = True
        return future

    def tell(self, held: Held, release: Callable[[], Any] | None) -> None:
        """Tells the user's code that a lease is over, then gives it back: callbacks stop the work first."""
        if isinstance(held.reason, LeaseLost):
            self.log(INFO if held.reason.cause in ("closed", "inactive") else WARNING, held.reason.message)
        for call in held.on_end:
            call()
        if release is not None and held.until_stopped is not None:
            release = functools.partial(held.until_stopped, release)
        if held.callbacks and isinstance(held.reason, LeaseLost):
            for callback in held.callbacks:
                self.later(functools.partial(callback, held.reason))
            if release is not None:
                self._after_calls.append(release)
        elif release is not None:
            release()

    def close(self) -> list[Future[Any]]:
        """Ends what waits and gives back what is held. The owner goes on until these are answered, or for a moment."""
        for acquiring in list(self._acquiring.values()):
            acquiring.close()
        last = [future for closer in self.closers for future in closer()]
        return last + [self.release(held) for held in list(self.renewals.held.values())]

    def end(self) -> None:
        """Nothing is sent or answered any more."""
        for held in list(self.renewals.held.values()):
            self.renewals.lose(held, held.lost("closed", closed_error().message), definite=True)
        self.channel.close()
        self.watches.close()

    # The connection

    def _connection_made(self, continues: bool) -> None:
        self.log(INFO, "connected" if self.channel.stats["connections"] == 1 else "connected again")
        if not continues:
            text = "the log of the server went back: it does not contain what this process was told, as after a data directory was put back"
            for held in list(self.renewals.held.values()):
                # Nothing is released: a lease with our number may belong to another holder in that log.
                self.renewals.lose(held, held.lost("rewound", f"{text} from a copy"), definite=True)
            self.incarnation = None
        self.renewals.renew_all()
        self.watches.connection_made(continues)

    def _connection_lost(self) -> None:
        if not self.channel.closed and self.channel.failure is not None:
            self.log(WARNING, f"{self.channel.failure.message}; connecting again, with leases held: {len(self.renewals.held)}")
        for acquiring in list(self.queued.values()):
            acquiring.connection_lost()
        self.watches.connection_lost()

    def _pushed(self, items: list[Any]) -> None:
        if not items:
            return
        if items[0] in ("lease.granted", "lease.withdrawn") and len(items) > 2:
            acquiring = self.queued.get(items[1]) if isinstance(items[1], int) else None
            if acquiring is not None:
                acquiring.pushed(items[0], items[2])
        elif items[0] in ("lease.events", "lease.unwatched"):
            self.watches.pushed(items)
