"""The client without threads and sockets: requests, answers and time in; bytes, results and losses out.

A runner (``_runner.py``) drives it with real sockets and the system's clocks. The conformance driver drives it by hand, in
virtual time. It is not thread-safe: the runner calls it from one thread at a time.

Rules that make a holder safe, each with the accident it prevents:

* A term is counted from before the request was sent (etcd, client-go: counted from the answer, so two hold it).
* A margin is given up at its end, since clocks run at different rates.
* A lease that was waited for is trusted only after a renewal sent after the news of its grant (redlock 296).
* An answer never brings back what was lost by the clock.
* A request that may have been carried out is repeated under the same operation id only (jetcd: done twice).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ._clock import Clock, Reading
from ._errors import LeaseError
from ._held import CLOCK_ERROR, Held
from ._resp import Decoder, ProtocolError, Push, command

#: Ids in one LEASE.RENEW.
MAX_RENEWALS = 10_000
#: A connection that leaves a request unanswered for this long is given up; less where leases are shorter.
SILENCE = 5.0
#: A request is answered UNAVAILABLE or UNKNOWN after this long without an answer, or after a ttl if that is longer.
ANSWER_TIMEOUT = 10.0
#: Pauses between attempts to connect.
RETRY_FIRST, RETRY_LAST = 0.05, 1.0

Callback = Callable[[Any, LeaseError | None, Reading], None]


@dataclass(slots=True)
class Request:
    """One command on its way. ``done(value, error, first_sent)`` is called once."""

    words: tuple[str | int, ...]
    done: Callback
    #: Repeating it has one effect: a read, a renewal, or a change that carries an operation id.
    repeatable: bool
    expires: float
    #: Before the first copy left.
    sent: Reading | None = None
    in_flight: bool = False
    finished: bool = False


@dataclass(slots=True)
class Options:
    """What a client is configured with."""

    holder: str
    api_key: str | None = None
    clock_error: float = CLOCK_ERROR
    addresses: int = 1


@dataclass(slots=True)
class AcquireRequest:
    names: tuple[str, ...]
    ttl: float
    wait: float | None = None
    """Seconds to wait; ``inf``: until granted; ``None``: do not wait."""
    mode: str = "exclusive"
    units: int | None = None
    priority: int | None = None
    parent: int | None = None
    any: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    grace: float | None = None
    max_life: float | None = None
    on_wait: Callable[[int], None] | None = None


class Engine:
    """See the module's comment. Outputs: ``take_sends()``, ``take_calls()`` and ``wants_connection``."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.session = secrets.token_hex(8)
        self._ops = itertools.count(1)
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: deque[Request] = deque()
        self._in_flight: deque[Request] = deque()
        self._decoder = Decoder()
        self._send = bytearray()
        self._calls: list[Callable[[], None]] = []
        self.held: dict[int, Held] = {}
        self._queued: dict[int, _Acquiring] = {}
        self._acquiring: set[_Acquiring] = set()
        self._connected = False
        self._greeted = False
        self._heard = 0.0
        self._witness = ""
        self._attempt = 0
        self._connect_at = 0.0
        self._last_failure: LeaseError | None = None
        self.incarnation: int | None = None
        self.closed = False
        self.stats = {"messages": 0, "renewals": 0, "connections": 0}

    # What the runner does

    @property
    def wants_connection(self) -> bool:
        """Whether the runner should open a connection now."""
        return not self._connected and not self.closed and self.clock.read().monotonic >= self._connect_at

    def next_time(self) -> float | None:
        """The monotonic moment at which ``tick`` has something to do."""
        times = [self._timers[0][0]] if self._timers else []
        if not self._connected and not self.closed:
            times.append(self._connect_at)
        if self._in_flight:
            times.append(self._heard + self._silence())
        return min(times, default=None)

    def take_sends(self) -> bytes:
        data, self._send = bytes(self._send), bytearray()
        return data

    def take_calls(self) -> list[Callable[[], None]]:
        """Callbacks of the user, to be called outside of the engine."""
        calls, self._calls = self._calls, []
        return calls

    def connected(self) -> None:
        self._connected = True
        self._greeted = False
        self._decoder = Decoder()
        self._heard = self.clock.read().monotonic
        self.stats["connections"] += 1
        words: list[str | int] = ["HELLO", 3]
        if self.options.api_key is not None:
            words += ["AUTH", "default", self.options.api_key]
        words += ["SETNAME", _client_name(self.options.holder), "WITNESS", self._witness]
        greeting = Request(tuple(words), self._greeting, False, float("inf"))
        self._transmit(greeting)

    def disconnected(self, error: LeaseError) -> None:
        """The connection broke, or could not be made."""
        now = self.clock.read()
        self._connected = self._greeted = False
        self._send.clear()
        self._last_failure = error
        pause = min(RETRY_LAST, RETRY_FIRST * 2 ** min(self._attempt, 10)) * (0.5 + secrets.randbelow(1000) / 2000)
        self._attempt += 1
        self._connect_at = now.monotonic + pause
        lost, self._in_flight = self._in_flight, deque()
        for request in reversed(lost):
            request.in_flight = False
            if request.done == self._greeting or request.finished:
                continue
            if request.repeatable:
                self._queue.appendleft(request)
            else:
                self._finish(request, None, LeaseError("UNKNOWN", f"the connection was lost before the answer: {error.message}"))
        for waiting in list(self._queued.values()):
            waiting.connection_lost()
        self._queued.clear()

    def received(self, data: bytes) -> None:
        """Raises ``ProtocolError`` when the peer does not speak RESP: the runner closes the connection."""
        self._heard = self.clock.read().monotonic
        for value in self._decoder.feed(data):
            if isinstance(value, Push):
                self._pushed(value.items)
                continue
            if not self._in_flight:
                raise ProtocolError("an answer to nothing")
            request = self._in_flight.popleft()
            if isinstance(value, LeaseError):
                self._finish(request, None, value)
            else:
                self._finish(request, value, None)

    def tick(self) -> bool:
        """Does what is due. Returns False when the connection is silent for too long and must be closed."""
        now = self.clock.read().monotonic
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        return not (self._in_flight and now >= self._heard + self._silence())

    # Requests

    def operation(self) -> str:
        return f"{self.session}:{next(self._ops)}"

    def request(self, *words: str | int, done: Callback, repeatable: bool, timeout: float = ANSWER_TIMEOUT) -> Request:
        now = self.clock.read().monotonic
        request = Request(words, done, repeatable, now + timeout)
        self.at(request.expires, lambda: self._expire(request))
        if self._greeted:
            self._transmit(request)
        else:
            self._queue.append(request)
        return request

    def call(self, *words: str | int, repeatable: bool, timeout: float = ANSWER_TIMEOUT) -> Future[Any]:
        """A request whose answer is wanted as a future."""
        future: Future[Any] = Future()

        def done(value: Any, error: LeaseError | None, sent: Reading) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        if self.closed:
            future.set_exception(LeaseError("UNAVAILABLE", "this client was closed"))
        else:
            self.request(*words, done=done, repeatable=repeatable, timeout=timeout)
        return future

    def at(self, moment: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (moment, next(self._numbers), then))

    def later(self, call: Callable[[], None]) -> None:
        """A callback of the user."""
        self._calls.append(call)

    def _transmit(self, request: Request) -> None:
        if request.finished:
            return
        if request.sent is None:
            request.sent = self.clock.read()
        if not self._in_flight:
            self._heard = self.clock.read().monotonic
        request.in_flight = True
        self._in_flight.append(request)
        self._send += command(*request.words)
        self.stats["messages"] += 1

    def _expire(self, request: Request) -> None:
        if request.finished:
            return
        why = "" if self._last_failure is None else f": {self._last_failure.message}"
        code = "UNAVAILABLE" if request.sent is None else "UNKNOWN"
        self._finish(request, None, LeaseError(code, f"no answer to {request.words[0]}{why}"))

    def _finish(self, request: Request, value: Any, error: LeaseError | None) -> None:
        if request.finished:
            return
        request.finished = True
        request.done(value, error, request.sent or self.clock.read())

    def _silence(self) -> float:
        shortest = min((held.term for held in self.held.values()), default=SILENCE * 4) if len(self.held) < 100 else SILENCE
        return max(0.1, min(SILENCE, shortest / 4))

    def _greeting(self, value: Any, error: LeaseError | None, sent: Reading) -> None:
        if error is not None:
            # The server refuses us: what waits is told why, and the next attempt may find another server or another key.
            self._last_failure = error
            if error.code in ("UNAUTHENTICATED", "FORBIDDEN", "INVALID"):
                refused, self._queue = self._queue, deque()
                for request in refused:
                    self._finish(request, None, error)
            return
        self._attempt = 0
        self._greeted = True
        if isinstance(value, dict):
            self._witness = str(value.get("witness", "") or "")
            if value.get("continues") == 0:
                for held in list(self.held.values()):
                    self.lose(held, "rewound", "the server's log was put back to an earlier state")
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            self._transmit(request)
        for acquiring in list(self._acquiring):
            acquiring.connection_made()
        self._renew_due(everything=True)

    def _pushed(self, items: list[Any]) -> None:
        if len(items) < 3 or items[0] not in ("lease.granted", "lease.withdrawn"):
            return
        acquiring = self._queued.get(items[1])
        if acquiring is not None:
            acquiring.pushed(items[0], items[2])

    # Leases in hand

    def believe(self, held: Held, sent: Reading, term: float) -> bool:
        """Begins, or goes on, to trust the lease. False: the answer came too late."""
        if held.reason is not None:
            return False
        held.extend(sent, term, self.options.clock_error)
        if held.deadline.passed(self.clock.read()):
            self.lose(held, "deadline", "the answer came after the term was over")
            return False
        self.held[held.id] = held
        self._schedule(held, held.renewed.monotonic + held.term / 2)
        return True

    def _schedule(self, held: Held, moment: float) -> None:
        held.wake = min(moment, held.deadline.monotonic)
        self.at(held.wake, lambda: self._wake(held))

    def _wake(self, held: Held) -> None:
        now = self.clock.read()
        if held.reason is not None or held.wake > now.monotonic:
            return
        if held.deadline.passed(now):
            self.lose(held, "deadline", "no renewal was answered in time")
            return
        self._renew_due()

    def _renew_due(self, everything: bool = False) -> None:
        """Renews in one message what is due, and what will be soon."""
        now = self.clock.read()
        due = []
        for held in list(self.held.values()):
            if held.deadline.passed(now):
                self.lose(held, "deadline", "no renewal was answered in time")
            elif not held.renewing and (everything or now.monotonic >= held.renewed.monotonic + held.term * 0.45):
                due.append(held)
            elif held.wake <= now.monotonic:
                self._schedule(held, held.deadline.monotonic)
        if not self._greeted:
            for held in due:
                if held.wake <= now.monotonic:
                    self._schedule(held, held.deadline.monotonic)
            return
        for start in range(0, len(due), MAX_RENEWALS):
            self._renew(due[start : start + MAX_RENEWALS])

    def _renew(self, leases: list[Held]) -> None:
        for held in leases:
            held.renewing = True
            self._schedule(held, held.deadline.monotonic)
        self.stats["renewals"] += len(leases)

        def done(value: Any, error: LeaseError | None, sent: Reading) -> None:
            terms = value if error is None and isinstance(value, list) and len(value) == len(leases) else None
            now = self.clock.read()
            for i, held in enumerate(leases):
                held.renewing = False
                if held.reason is not None:
                    continue
                if terms is None:
                    # Nothing is known: ask again soon, long before its deadline if there is time.
                    self._schedule(held, now.monotonic + max(0.02, held.term / 20))
                    held.renewed = Reading(now.monotonic - held.term, held.renewed.boottime)
                elif terms[i] < 0:
                    self.lose(held, "gone", "the server has ended it")
                else:
                    self.believe(held, sent, terms[i] / 1000)

        shortest = min(held.term for held in leases)
        self.request("LEASE.RENEW", *(held.id for held in leases), done=done, repeatable=False, timeout=shortest / 2)

    def lose(self, held: Held, cause: str, why: str) -> None:
        if held.reason is not None:
            return
        held.reason = held.lost(cause, why)
        self.held.pop(held.id, None)
        if held.on_end is not None:
            self.later(held.on_end)
        for callback in held.callbacks:
            self.later(functools.partial(callback, held.reason))

    def release(self, held: Held) -> Future[Any]:
        """The holder stops first and says so afterwards."""
        if held.reason is None:
            held.reason = LeaseError("GONE", f"{held.name} was released", {"lease": held.id})
            if held.on_end is not None:
                self.later(held.on_end)
        self.held.pop(held.id, None)
        return self.give_back(held.id, held.ttl)

    def give_back(self, lease: int, ttl: float) -> Future[Any]:
        """Repeated until it is answered, or until the term is over and the lease has expired by itself."""
        return self.call("LEASE.RELEASE", lease, repeatable=True, timeout=max(ttl, 1.0))

    # Acquiring

    def acquire(self, request: AcquireRequest) -> Future[Held]:
        acquiring = _Acquiring(self, request)
        self._acquiring.add(acquiring)
        acquiring.begin()
        return acquiring.future

    def cancel(self, future: Future[Held]) -> None:
        for acquiring in list(self._acquiring):
            if acquiring.future is future:
                acquiring.stop(None)

    def close(self) -> list[Future[Any]]:
        """Ends what waits and gives back what is held. The runner goes on until these are answered, or for a moment."""
        for acquiring in list(self._acquiring):
            acquiring.stop(LeaseError("UNAVAILABLE", "this client was closed"))
        answers = [self.release(held) for held in list(self.held.values())]
        self.closed = True
        return answers

    def _forget(self, acquiring: _Acquiring) -> None:
        self._acquiring.discard(acquiring)
        if acquiring.lease is not None:
            self._queued.pop(acquiring.lease, None)


class _Acquiring:
    """One acquire, from the request to a lease in hand."""

    def __init__(self, engine: Engine, request: AcquireRequest) -> None:
        self._engine = engine
        self._asked = request
        self.future: Future[Held] = Future()
        self.lease: int | None = None
        self._op = engine.operation()
        self._stopped = False
        self._reconnecting = False
        now = engine.clock.read().monotonic
        self._deadline = now + (0.0 if request.wait is None else request.wait)
        if request.wait is not None and request.wait != float("inf"):
            engine.at(self._deadline, self._over)

    def begin(self) -> None:
        request, engine = self._asked, self._engine
        words: list[str | int] = [
            "LEASE.ACQUIRE",
            *request.names,
            "TTL",
            round(request.ttl * 1000),
            "HOLDER",
            engine.options.holder,
        ]
        if request.wait is not None:
            words.append("QUEUE")
        if request.mode == "shared":
            words.append("SHARED")
        numbers = {"UNITS": request.units, "PRIORITY": request.priority, "PARENT": request.parent, "ANY": request.any}
        numbers["INCARNATION"] = engine.incarnation
        for word, number in numbers.items():
            if number is not None:
                words += [word, number]
        for word, duration in {"GRACE": request.grace, "MAXLIFE": request.max_life}.items():
            if duration is not None:
                words += [word, round(duration * 1000)]
        for name, value in request.labels.items():
            words += ["LABEL", name, value]
        for key, value in request.entries.items():
            words += ["ENTRY", key, value]
        words += ["OP", self._op]
        timeout = ANSWER_TIMEOUT if request.wait is None else max(ANSWER_TIMEOUT, request.ttl)
        engine.request(*words, done=self._answered, repeatable=True, timeout=timeout)

    def _answered(self, value: Any, error: LeaseError | None, sent: Reading) -> None:
        if error is not None:
            waits = self._asked.wait is not None and not self._stopped
            if error.code == "UNAVAILABLE" and waits and self._engine.clock.read().monotonic < self._deadline:
                self._again()
            else:
                self._fail(error)
            return
        self.lease = int(value["lease"])
        if self._stopped:
            self._engine.give_back(self.lease, self._asked.ttl)
            return
        if "position" not in value:
            self._granted(value, sent)
            return
        self._engine._queued[self.lease] = self
        if self._asked.on_wait is not None:
            on_wait, position = self._asked.on_wait, int(value["position"])
            self._engine.later(lambda: on_wait(position))

    def pushed(self, kind: str, facts: dict[str, Any]) -> None:
        engine = self._engine
        assert self.lease is not None
        engine._queued.pop(self.lease, None)
        if kind == "lease.withdrawn":
            self._fail(LeaseError(str(facts.get("code", "UNKNOWN")), str(facts.get("message", "the wait was ended"))))
            return
        self._confirm(facts)

    def _confirm(self, facts: dict[str, Any]) -> None:
        """How long ago it was granted is not known: only a renewal sent from here on says until when it is ours."""
        lease = self.lease
        assert lease is not None

        def done(value: Any, error: LeaseError | None, sent: Reading) -> None:
            if self._stopped:
                self._engine.give_back(lease, self._asked.ttl)
            elif error is None and value[0] > 0:
                self._granted({**facts, "ttl": value[0]}, sent)
            elif error is not None and error.code == "UNAVAILABLE":
                self._confirm(facts)
            else:
                self._again()

        self._engine.request("LEASE.RENEW", lease, done=done, repeatable=True, timeout=self._asked.ttl)

    def _granted(self, value: dict[str, Any], sent: Reading) -> None:
        engine = self._engine
        lease = int(value["lease"])
        tokens = value.get("tokens") or dict.fromkeys(self._asked.names[:1], value.get("token", 0))
        resources = tuple(tokens) if self._asked.any is not None else self._asked.names
        held = Held(engine.clock, lease, self._asked.ttl, resources, {str(k): int(v) for k, v in tokens.items()})
        engine._forget(self)
        if not engine.believe(held, sent, int(value["ttl"]) / 1000):
            engine.give_back(lease, self._asked.ttl)
            self._fail(held.reason or LeaseError("UNKNOWN", "the answer came too late"))
            return
        if engine.incarnation is None:
            engine.incarnation = int(value.get("incarnation", 0)) or lease
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(held)
        else:
            engine.release(held)

    def _again(self) -> None:
        """Queues anew: a new request under a new operation."""
        self.lease = None
        self._op = self._engine.operation()
        self._engine.at(self._engine.clock.read().monotonic + 0.05, lambda: None if self._stopped else self.begin())

    def connection_lost(self) -> None:
        """The server gives up the place of a waiter whose connection broke. It may have been granted just before."""
        self._reconnecting = True

    def connection_made(self) -> None:
        if not self._reconnecting or self.lease is None:
            return
        self._reconnecting = False
        lease = self.lease

        def done(value: Any, error: LeaseError | None, sent: Reading) -> None:
            if self._stopped:
                return
            if error is None and isinstance(value, dict) and value.get("status") == "live":
                grants = {grant["resource"]: grant["token"] for grant in value.get("grants", [])}
                self._confirm({"lease": lease, "token": next(iter(grants.values()), 0), "tokens": grants})
                return
            if error is None:
                self._engine.give_back(lease, self._asked.ttl)
            self._again()

        self._engine.request("LEASE.INFO", lease, done=done, repeatable=True, timeout=self._asked.ttl)

    def _over(self) -> None:
        if not self.future.done():
            names = ", ".join(self._asked.names)
            facts = {"resources": list(self._asked.names), "waited": round((self._asked.wait or 0) * 1000)}
            self.stop(LeaseError("TIMEOUT", f"{names} was not granted within {self._asked.wait:g} s", facts))

    def stop(self, error: LeaseError | None) -> None:
        """Ends the wait. What was granted meanwhile is given back."""
        if self._stopped:
            return
        self._stopped = True
        engine = self._engine
        lease = self.lease
        engine._forget(self)
        if lease is not None:
            engine.give_back(lease, self._asked.ttl)
        if error is None:
            self.future.cancel()
        else:
            self._fail(error)

    def _fail(self, error: LeaseError) -> None:
        self._engine._forget(self)
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def _client_name(holder: str) -> str:
    """CLIENT names have no blanks."""
    return "".join(c if "!" <= c <= "~" else "-" for c in holder)
