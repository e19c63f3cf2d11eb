"""Requests and their answers over one connection after another. No I/O, no thread.

A request that was on a connection that broke is sent again under the same words on the next one. That is safe for reads and renewals, and
for changes that carry an operation id: the server answers a repeated operation with its first answer.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from ._clock import Clock, Reading
from ._duration import in_words
from ._errors import LeaseError, closed_error
from ._random import fraction
from ._resp import Decoder, ProtocolError, Push, command
from ._timers import Timer, Timers

#: Without an answer for this long, or for a ttl if that is longer, the outcome is UNKNOWN.
ANSWER_TIMEOUT = 10.0
#: Longest and shortest time that a connection may leave a request unanswered before it is given up.
SILENCE, SHORTEST_SILENCE = 10.0, 0.1
#: A lease is renewed at half of its term: so much of the term is for noticing that the connection is dead.
SILENCE_SHARE = 6
#: With other addresses to go to, a server that does not greet is not waited for any longer.
GREETING_TIMEOUT = 1.0
#: A connection without requests is tried this often while grants or events may come over it.
KEEPALIVE = 5.0
#: Pauses between attempts to connect, and between copies of a request.
RETRY_FIRST, RETRY_LAST = 0.05, 1.0

_FOREVER = float("inf")

Words = tuple["str | int", ...]
Done = Callable[[Any, "LeaseError | None", "Request"], None]


class Request:
    """One command on its way. ``done(value, error, request)`` is called once.

    With ``late``, a request whose outcome is UNKNOWN is sent again until it is answered: ``late(value, request)`` gets the answer.
    """

    __slots__ = (
        "again",
        "copies",
        "done",
        "finished",
        "kind",
        "late",
        "number",
        "patient",
        "sent",
        "timeout",
        "timer",
        "uncertain",
        "unresolved",
        "words",
    )

    def __init__(self, words: Words, done: Done, kind: str, timeout: float) -> None:
        self.words = words
        self.done = done
        #: read, change (has an operation id, or is safe to repeat), renew, hello or ping.
        self.kind = kind
        self.timeout = timeout
        self.timer: Timer | None = None
        self.late: Callable[[Any, Request], None] | None = None
        #: Ask again after UNAVAILABLE, until the timeout.
        self.again = False
        #: Its caller has said how long it waits: also for a server that was never reached.
        self.patient = False
        #: The clocks and the request's number before the first copy left.
        self.sent: Reading | None = None
        self.number = 0
        self.copies = 0
        #: One copy may have been carried out. The failure of another copy does not prove that it was not.
        self.uncertain = False
        self.finished = False
        #: Its caller was told UNKNOWN, and it is sent again for ``late``.
        self.unresolved = False

    @property
    def sent_at(self) -> Reading:
        assert self.sent is not None
        return self.sent


class Channel:
    """The owner sets the four callbacks, and drives ``connected``, ``received``, ``disconnected`` and ``tick``."""

    def __init__(self, clock: Clock, timers: Timers, holder: str, api_key: str | None, addresses: int) -> None:
        self._clock = clock
        self._timers = timers
        self._holder = holder
        self._api_key = api_key
        self._addresses = addresses
        self._queue: deque[Request] = deque()
        self._in_flight: deque[Request] = deque()
        self._decoder = Decoder()
        self._out: list[bytes] = []
        #: When the server was last heard, and since when it owes an answer, or was silent.
        self.heard = 0.0
        self._quiet_since = 0.0
        self._witness = ""
        self._attempt = 0
        self._tried: list[str] = []
        self._ever = False
        self.connect_at = 0.0
        self.connected_now = False
        self.ready = False
        self.closed = False
        #: The number of the last request that was sent.
        self.last_number = 0
        self.failure: LeaseError | None = None
        #: The connection must be closed, for this reason.
        self.drop: LeaseError | None = None
        self.stats = {"messages": 0, "connections": 0}
        self.on_ready: Callable[[bool], None] = lambda continues: None
        self.on_down: Callable[[], None] = lambda: None
        self.on_push: Callable[[list[Any]], None] = lambda items: None
        #: The shortest term of a held lease, and whether grants or events may come.
        self.shortest_term: Callable[[], float | None] = lambda: None
        self.listening: Callable[[], bool] = lambda: False

    # Requests

    def send(self, words: Words, done: Done, kind: str = "change", timeout: float = ANSWER_TIMEOUT) -> Request:
        request = Request(words, done, kind, timeout)
        if self.closed:
            self._finish(request, None, closed_error())
            return request
        # Before the send, and before its encoding: a term is counted from here.
        now = self._clock.read()
        if timeout != _FOREVER:
            request.timer = self._timers.at(now.monotonic + timeout, functools.partial(self._expire, request))
        if self.ready:
            self._transmit(request, now)
        else:
            self._queue.append(request)
        return request

    def withdraw(self, request: Request) -> bool:
        """Its caller has gone. False: it was sent, and its answer must be waited for."""
        if request.sent is not None or request.finished:
            return False
        request.finished = True
        if request.timer is not None:
            request.timer.cancel()
        self._queue.remove(request)
        return True

    def take(self) -> bytes:
        """What is to be sent now."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _transmit(self, request: Request, now: Reading) -> None:
        if request.finished and not request.unresolved:
            return
        if request.sent is None:
            self.last_number += 1
            request.number = self.last_number
            request.sent = now
        if not self._in_flight:
            self._quiet_since = now.monotonic
        request.copies += 1
        self._in_flight.append(request)
        self._out.append(command(request.words))
        self.stats["messages"] += 1

    def _finish(self, request: Request, value: Any, error: LeaseError | None) -> None:
        if request.finished:
            return
        request.finished = True
        if request.timer is not None:
            request.timer.cancel()
        request.done(value, error, request)

    def _expire(self, request: Request) -> None:
        if request.finished:
            return
        why = f"no answer for {in_words(request.timeout)}" + (f": {self.failure.message}" if self.failure else "")
        if request.kind == "read" or request.sent is None:
            self._finish(request, None, LeaseError("UNAVAILABLE", why))
        else:
            request.unresolved = request.late is not None and request.kind == "change"
            self._finish(request, None, LeaseError("UNKNOWN", f"{why}: the change may or may not have been made"))

    def _answered(self, request: Request, value: Any) -> None:
        if request.finished:
            if request.unresolved and isinstance(value, LeaseError) and value.code in ("UNKNOWN", "UNAVAILABLE", "LIMIT"):
                return self._repeat(request)
            request.unresolved = False
            if request.late is not None and not isinstance(value, LeaseError):
                request.late(value, request)
            return
        if not isinstance(value, LeaseError):
            self._finish(request, value, None)
            return
        if request.kind == "change":
            certain = request.copies == 1 and not request.uncertain
            if value.code == "UNKNOWN":
                request.uncertain = True
                return self._repeat(request)
            if value.code == "UNAVAILABLE" and (request.again or not certain):
                return self._repeat(request)
            if not certain and value.code == "LIMIT":
                return self._repeat(request)
            if not certain and value.code in ("FORBIDDEN", "UNAUTHENTICATED"):
                text = f"{value.message}: an earlier copy of this request may or may not have been carried out"
                value = LeaseError("UNKNOWN", text, value.facts, reason=value.reason)
        self._finish(request, None, value)

    def _repeat(self, request: Request) -> None:
        pause = min(RETRY_LAST, RETRY_FIRST * 2 ** min(request.copies - 1, 10))
        self._timers.at(self._clock.read().monotonic + pause, lambda: self._send_again(request))

    def _send_again(self, request: Request) -> None:
        if self.ready:
            self._transmit(request, self._clock.read())
        elif not request.finished or request.unresolved:
            self._queue.append(request)

    # The connection

    @property
    def wants_connection(self) -> bool:
        return not self.connected_now and not self.closed and self._clock.read().monotonic >= self.connect_at

    def connected(self) -> None:
        self.connected_now = True
        self.ready = False
        self.drop = None
        self._decoder = Decoder()
        self._out.clear()
        self.stats["connections"] += 1
        words: list[str | int] = ["HELLO", 3]
        if self._api_key is not None:
            words += ["AUTH", "default", self._api_key]
        words += ["SETNAME", _client_name(self._holder), "WITNESS", self._witness]
        self._transmit(Request(tuple(words), self._greeted, "hello", _FOREVER), self._clock.read())

    def _greeted(self, value: Any, error: LeaseError | None, request: Request) -> None:
        if error is None and not (isinstance(value, dict) and value.get("server") == "leasehold"):
            error = LeaseError("UNAVAILABLE", "this is no Leasehold server")
        if error is not None:
            if error.code in ("UNAUTHENTICATED", "FORBIDDEN"):
                # It would be refused again: tell those that wait. The next attempt may find a server that knows the key.
                refused, self._queue = self._queue, deque()
                for waiting in refused:
                    self._finish(waiting, None, error)
            self.drop = error
            return
        self._attempt = 0
        self._ever = True
        self._tried.clear()
        self.failure = None
        self.ready = True
        self._witness = str(value.get("witness") or "")
        queue, self._queue = self._queue, deque()
        # Before anything is asked: what is held may have to be given up.
        self.on_ready(value.get("continues", 1) != 0)
        for waiting in queue:
            self._transmit(waiting, self._clock.read())

    def disconnected(self, error: LeaseError) -> None:
        """The connection broke, or could not be made."""
        was_ready = self.ready
        self.connected_now = self.ready = False
        self.drop = None
        self._out.clear()
        self.failure = error
        # All addresses are tried before each pause.
        self._attempt += 1
        rounds, within = divmod(self._attempt, self._addresses)
        pause = 0.0 if within else RETRY_FIRST * 2 ** min(rounds - 1, 10)
        self.connect_at = self._clock.read().monotonic + min(RETRY_LAST, pause) * (0.5 + fraction() / 2)
        lost, self._in_flight = self._in_flight, deque()
        for request in reversed(lost):
            if (request.finished and not request.unresolved) or request.kind in ("hello", "ping"):
                continue
            request.uncertain = True
            if request.kind == "renew":
                self._finish(request, None, LeaseError("UNKNOWN", error.message, error.facts, reason=error.reason))
            else:
                self._queue.appendleft(request)
        if not self._ever:
            self._unreachable(error)
        if was_ready:
            self.on_down()

    def _unreachable(self, error: LeaseError) -> None:
        """No server has answered yet: a wrong address is likelier than an outage, so say at once what was tried."""
        self._tried.append(error.message)
        if len(self._tried) < self._addresses:
            return
        told, self._tried = self._tried, []
        waiting = [request for request in self._queue if not request.patient]
        self._queue = deque(request for request in self._queue if request.patient)
        for request in waiting:
            self._finish(request, None, LeaseError("UNAVAILABLE", f"no server can be reached: {'; '.join(told)}", {"tried": told}))

    def received(self, data: bytes) -> None:
        """Raises ``ProtocolError`` when the peer does not speak RESP: the owner closes the connection."""
        self.heard = self._quiet_since = self._clock.read().monotonic
        for value in self._decoder.feed(data):
            if isinstance(value, Push):
                if value.items[:1] == ["lease.witness"] and len(value.items) == 2:
                    # It comes before the answers that it covers.
                    self._witness = str(value.items[1])
                else:
                    self.on_push(value.items)
                continue
            if not self._in_flight:
                raise ProtocolError("an answer to nothing")
            self._answered(self._in_flight.popleft(), value)

    def _silence(self) -> float:
        if not self.ready:
            return GREETING_TIMEOUT if self._addresses > 1 else SILENCE / 2
        shortest = self.shortest_term()
        return SILENCE if shortest is None else max(SHORTEST_SILENCE, min(SILENCE, shortest / SILENCE_SHARE))

    def next_time(self) -> float | None:
        """The moment at which ``tick`` has something to do."""
        if not self.connected_now:
            return None if self.closed else self.connect_at
        if self._in_flight:
            return self._quiet_since + self._silence()
        return self._quiet_since + KEEPALIVE if self.ready and self.listening() else None

    def tick(self, now: float) -> None:
        if not self.connected_now or self.drop is not None:
            return
        if self._in_flight:
            limit = self._silence()
            if now >= self._quiet_since + limit:
                self.drop = LeaseError("UNAVAILABLE", f"the server has not answered for {in_words(limit)}")
        elif self.ready and now >= self._quiet_since + KEEPALIVE and self.listening():
            self._transmit(Request(("PING",), lambda value, error, request: None, "ping", _FOREVER), self._clock.read())

    def close(self) -> None:
        """Fails what was not answered. Nothing can be sent from here on."""
        self.closed = True
        waiting = [*self._in_flight, *self._queue]
        self._queue.clear()
        for request in waiting:
            error = closed_error()
            if request.sent is not None and request.kind != "read":
                text = f"{error.message}: the change may or may not have been made"
                error = LeaseError("UNKNOWN", text, error.facts, reason=error.reason)
            self._finish(request, None, error)

    @property
    def idle(self) -> bool:
        return not self._in_flight and not self._queue


def _client_name(holder: str) -> str:
    """Names of connections have no blanks."""
    return "".join(c if "!" <= c <= "~" else "-" for c in holder)
