"""Runs an engine on a thread of its own: one socket, the system's clocks, and the callbacks of the user.

The thread is a daemon and is never joined without a bound, so the interpreter's exit does not hang on a server that is away.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import threading
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

from ._address import Address
from ._clock import Clock
from ._engine import Engine
from ._errors import LeaseError
from ._resp import ProtocolError

T = TypeVar("T")

CONNECT_TIMEOUT = 3.0
#: How long closing waits for the server to confirm what was given back.
GOODBYE = 1.0


class Runner:
    """Every entry point locks; the engine is never used by two threads at once."""

    def __init__(self, engine: Engine, addresses: list[Address], clock: Clock) -> None:
        self._engine = engine
        self._addresses = addresses
        self._next = 0
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._socket: socket.socket | None = None
        self._connecting = False
        self._unsent = b""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[Engine], T]) -> T:
        """Runs ``work`` with the engine, at once and on the caller's thread."""
        self._check_fork()
        with self._lock:
            if self._stopping:
                raise LeaseError("UNAVAILABLE", "this client was closed")
            result = work(self._engine)
        self._wake()
        return result

    def post(self, work: Callable[[Engine], Any]) -> None:
        """As ``do``, from a place that must not raise: a finalizer, or another thread that is ending."""
        if os.getpid() == self._pid and not self._stopping:
            self._jobs.append(lambda: work(self._engine))
            self._wake()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._stopping:
                return
            answers = self._engine.close()
        self._wake()
        if answers and self._socket is not None and threading.current_thread() is not self._thread:
            wait_for(answers, GOODBYE)
        self._stopping = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(GOODBYE)

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise LeaseError(
                "INVALID",
                "this client was made before a fork: its thread and its leases belong to the parent. Call connect() in the child",
            )

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # a defect here must not end renewals
                warnings.warn(f"leasehold: {error!r} in the client's thread", RuntimeWarning, stacklevel=2)
                self._drop(LeaseError("UNAVAILABLE", str(error)))
        self._drop(LeaseError("UNAVAILABLE", "this client was closed"))
        for end in (self._wake_read, self._wake_write):
            end.close()
        self._selector.close()

    def _turn(self) -> None:
        with self._lock:
            while self._jobs:
                self._jobs.popleft()()
            if self._engine.wants_connection and not self._connecting:
                self._connecting = True
                address = self._addresses[self._next % len(self._addresses)]
                self._next += 1
                threading.Thread(target=self._connect, args=(address,), name="leasehold-connect", daemon=True).start()
            self._flush()
            moment = self._engine.next_time()
            calls = self._engine.take_calls()
        self._call(calls)
        if calls:
            return
        now = self._clock.read().monotonic
        timeout = 60.0 if moment is None else max(0.0, moment - now)
        if self._connecting:
            timeout = min(timeout, CONNECT_TIMEOUT) if timeout > 0 else CONNECT_TIMEOUT
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        events = self._selector.select(0 if pending else min(timeout, 60.0))
        # Read first, then judge: after a stall an answer may be waiting in the socket.
        if pending or any(key.fileobj is self._socket for key, _ in events):
            self._receive()
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        with self._lock:
            alive = self._engine.tick()
        if not alive:
            self._drop(LeaseError("UNAVAILABLE", "the server does not answer"))

    def _call(self, calls: list[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception as error:
                warnings.warn(f"leasehold: a callback failed: {error!r}", RuntimeWarning, stacklevel=2)

    def _connect(self, address: Address) -> None:
        try:
            made = address.dial(CONNECT_TIMEOUT)
            made.setblocking(False)
        except (OSError, ssl.SSLError) as error:
            failure = LeaseError("UNAVAILABLE", f"cannot connect to {address}: {error}")
            self._jobs.append(lambda: self._failed(failure))
        else:
            self._jobs.append(lambda: self._made(made))
        self._wake()

    def _failed(self, error: LeaseError) -> None:
        self._connecting = False
        self._engine.disconnected(error)

    def _made(self, made: socket.socket) -> None:
        self._connecting = False
        if self._stopping:
            made.close()
            return
        self._socket = made
        self._selector.register(made, selectors.EVENT_READ)
        self._engine.connected()

    def _flush(self) -> None:
        if self._socket is None:
            return
        self._unsent += self._engine.take_sends()
        if not self._unsent:
            return
        try:
            sent = self._socket.send(self._unsent)
            self._unsent = self._unsent[sent:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._drop(LeaseError("UNAVAILABLE", f"the connection broke: {error}"))
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._socket, events)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(262_144)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._drop(LeaseError("UNAVAILABLE", f"the connection broke: {error}"))
            return
        if not data:
            self._drop(LeaseError("UNAVAILABLE", "the server closed the connection"))
            return
        try:
            with self._lock:
                self._engine.received(data)
        except ProtocolError as error:
            self._drop(LeaseError("UNAVAILABLE", f"this is no Leasehold server: {error}"))

    def _drop(self, error: LeaseError) -> None:
        with self._lock:
            if self._socket is None:
                return
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self._unsent = b""
            self._engine.disconnected(error)


def result(future: Future[T], timeout: float | None = None) -> T:
    """Waits on the caller's thread. The engine settles every future, so without ``timeout`` this ends as well."""
    return future.result(timeout)
