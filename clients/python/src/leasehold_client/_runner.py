"""Drives an engine: one socket, the system's clocks, and the callbacks of the user.

A caller runs the engine for its call, writes the request, and reads the answer, all on its own thread: in the common case no other thread
is woken. The client's thread does the rest: timers (renewals, deadlines), connecting, and reading while no caller reads. This is why that
is safe:

* The engine and the socket are used under one lock. What is read is passed to the engine before the lock is released, so the order is that
  of the socket whichever thread reads.
* One thread waits for input: a caller that waits for an answer, or else the client's thread. A caller that finds another one reading waits
  for its future. A caller that has its answer lets the client's thread watch the socket again before it returns, so answers to renewals,
  grants and events never wait for the next call.
* An event loop whose coroutines wait reads as well, and goes on reading between calls. The client's thread takes the socket back from a
  loop that has read nothing for a moment: it may be busy, or have ended.
* The client's thread depends on no caller. Before it judges by the clocks it reads what the socket has, even while a caller is reading: a
  caller that is slow, stopped in a debugger or in a signal handler delays nothing.
* A caller waits for its future, not for the socket. A future that another thread completes (a timeout, a close, a connection that broke)
  wakes the caller that reads.
* A signal handler that raises (Ctrl-C) ends the wait, never a step of the engine: see ``_signals.py``.

The threads are daemons and are never joined without a bound, so the interpreter's exit does not hang on a server that is away.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import select
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ._address import Address, try_again_errors
from ._clock import Clock
from ._engine import Engine
from ._errors import LeaseError, closed_error
from ._flow import Ask
from ._fork import in_child
from ._future import Future
from ._held import fork_error
from ._log import log_failure
from ._loop_reader import LoopReader
from ._poller import READ, WRITE, Poller
from ._resp import ProtocolError
from ._signals import SignalsHeldBack

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

CONNECT_TIMEOUT = 3.0
#: How long closing waits for the server to confirm what was given back.
GOODBYE = 1.0
#: Larger pieces would be allocated by the kernel, page by page, for every answer.
_CHUNK = 65_536
#: The longest sleep of the client's thread, while calls are made and while none are.
IN_USE, IDLE = 0.25, 60.0
#: Whether a thread may change what another one waits for. With select(), the client's thread reads for all.
CALLERS_READ = hasattr(select, "poll") and (hasattr(select, "epoll") or hasattr(select, "kqueue"))


class Runner:
    """The owner of an engine in a program. Every entry point locks; the engine is never used by two threads at once."""

    def __init__(self, engine: Engine, addresses: list[Address], clock: Clock) -> None:
        self._engine = engine
        self._addresses = addresses
        self._next = 0
        self._try_again = try_again_errors(addresses)
        #: A short read has emptied the socket; with TLS, it may have been one record of several.
        self._plain = all(address.tls is None for address in addresses)
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._poller = Poller()
        self._wake = self._poller.wake
        self._socket: socket.socket | None = None
        self._address = ""
        self._connecting = False
        self._unsent = b""
        #: The thread of the caller that reads, or the event loop.
        self._reader: int | LoopReader | None = None
        #: What a loop had read when the client's thread last looked.
        self._loop_reads = -1
        self._loop_readers: weakref.WeakSet[LoopReader] = weakref.WeakSet()
        self._local = threading.local()
        #: What the caller that reads waits for: its socket, and a nudge.
        self._input: Any = None
        self._nudge_read, self._nudge_write = socket.socketpair()
        self._nudge_read.setblocking(False)
        self._nudge_write.setblocking(False)
        self._stopping = False
        self._ended = False
        #: When the client's thread wakes by itself; the past while it runs.
        self._sleeps_until = float("-inf")
        self._callbacks: queue.SimpleQueue[list[Callable[[], None]] | None] | None = None
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        _RUNNERS.add(self)
        self._thread.start()

    # For every thread

    @property
    def foreign(self) -> bool:
        return os.getpid() != self._pid

    def do(self, work: Callable[[Engine], T]) -> T:
        if self.foreign:
            raise fork_error()
        with SignalsHeldBack(), self._lock:
            result = self._begin(work)
            if self._must_wake():
                self._wake()
        return result

    def _must_wake(self) -> bool:
        """Whether the client's thread has something to do before it would wake by itself."""
        engine = self._engine
        if self._unsent or engine.has_calls or engine.drop is not None:
            return True
        moment = engine.next_time(self._connecting)
        return moment is not None and moment < self._sleeps_until

    def post(self, work: Callable[[Engine], Any]) -> None:
        if not self.foreign and not self._stopping:
            self._jobs.append(lambda: work(self._engine))
            self._wake()

    def _run_posted(self) -> None:
        """Before every call and every turn: a cancelled wait must leave its queue before the same program asks again."""
        while self._jobs:
            self._jobs.popleft()()

    def wait(self, awaited: Future[T] | Ask[T]) -> T:
        me, outermost, nested = threading.get_ident(), False, False
        if me == self._thread.ident:
            raise LeaseError("INVALID", "this call waits for the client's own thread, and was made on it")
        if self.foreign:
            raise fork_error()
        try:
            with SignalsHeldBack(), self._lock:
                here = self._socket
                # Otherwise the client's thread reads, or another caller. A signal handler that makes a call during a call finds its own
                # thread reading.
                if self._reader in (None, me) and self._may_read():
                    outermost, nested = self._reader is None, self._reader == me
                    # Before anything is sent: the answer must not wake the client's thread.
                    self._reader = me
                    self._watch()
                future = awaited if isinstance(awaited, Future) else self._begin(awaited.begin)
                if self._must_wake():
                    self._wake()
            if here is not None and (outermost or nested):
                self._read_for(future, here, outermost)
        finally:
            if outermost:
                self._end_reading(me)
            elif nested:
                # What was read here may have answered the call that the signal has interrupted: it must look again.
                self._send_nudge()
        return future.result()

    def _may_read(self) -> bool:
        return self._socket is not None and CALLERS_READ and self._engine.ready

    def _begin(self, work: Callable[[Engine], T]) -> T:
        if self._stopping:
            raise closed_error()
        self._run_posted()
        result = work(self._engine)
        self._flush()
        return result

    def _read_for(self, future: Future[Any], here: socket.socket, outermost: bool) -> None:
        """Reads on this thread until the future is done. Returns early where the client's thread has to read."""
        future.add_done_callback(self._nudge)
        # A call of a signal handler waits on its own: the call that it has interrupted may be waiting.
        ready = self._input if outermost else self._new_input(here)
        nudged = self._nudge_read.fileno()
        while not future.done():
            for file, _ in ready.poll():
                if file == nudged:
                    with contextlib.suppress(BlockingIOError):
                        self._nudge_read.recv(4096)
            with SignalsHeldBack(), self._lock:
                if self._socket is not here:
                    return
                self._receive()
                self._flush()
                if outermost and future.done():
                    self._reader = None
                    self._watch()
                if self._must_wake():
                    self._wake()

    def _new_input(self, here: socket.socket) -> Any:
        ready = select.poll()
        ready.register(here, select.POLLIN)
        ready.register(self._nudge_read, select.POLLIN)
        return ready

    # For event loops

    def begin_in_loop(self, begin: Callable[[Engine], Future[T]], loop: asyncio.AbstractEventLoop) -> Future[T]:
        """As ``do``, for a caller that waits in an event loop: that loop reads from here on, until it is busy for too long."""
        if self.foreign:
            raise fork_error()
        with SignalsHeldBack(), self._lock:
            if self._reader is None and self._socket is not None and self._may_read():
                reader: LoopReader | None = getattr(self._local, "reader", None)
                if reader is None or not reader.serves(loop, self._socket):
                    reader = self._local.reader = LoopReader(self, loop, self._socket)
                    self._loop_readers.add(reader)
                if reader.works:
                    self._reader = reader
                    self._watch()
            future = self._begin(begin)
            if self._must_wake():
                self._wake()
        return future

    def read_in_loop(self, here: socket.socket) -> bool:
        """The socket that a loop watches is ready. False: it is not in use any more."""
        with SignalsHeldBack(), self._lock:
            if self._socket is not here:
                return False
            self._receive()
            self._flush()
            if self._must_wake():
                self._wake()
            return self._socket is here

    def leave_loop(self) -> None:
        """On the loop's thread, after ``close``."""
        reader: LoopReader | None = getattr(self._local, "reader", None)
        if reader is not None:
            reader.end()

    def _take_back(self) -> None:
        """From a loop that has read nothing since the last look: it may be busy, or closed. Its next call takes over again."""
        reader = self._reader
        if isinstance(reader, LoopReader):
            if reader.reads == self._loop_reads:
                self._reader = None
            self._loop_reads = reader.reads

    def _end_reading(self, me: int) -> None:
        interrupt: BaseException | None = None
        while self._reader == me:
            try:
                with SignalsHeldBack(), self._lock:
                    self._reader = None
                    self._watch()
                    if self._ended:
                        self._close_nudges()
            except BaseException as error:  # a second Ctrl-C
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _nudge(self, future: object = None) -> None:
        """Wakes the caller that reads, if it is another thread: its future is done, or its socket is gone."""
        if isinstance(self._reader, int) and self._reader != threading.get_ident():
            self._send_nudge()

    def _send_nudge(self) -> None:
        with contextlib.suppress(OSError):
            self._nudge_write.send(b"\0")

    def close(self) -> None:
        if self.foreign:
            return
        with SignalsHeldBack(), self._lock:
            if self._stopping:
                return
            answers = self._engine.close()
            self._flush()
            if isinstance(self._reader, LoopReader):
                self._reader = None  # it may have ended
                self._watch()
        self._wake()
        if threading.current_thread() is not self._thread:
            end = time.monotonic() + GOODBYE
            for answer in answers:
                answer.wait(max(0.0, end - time.monotonic()))
        with SignalsHeldBack(), self._lock:
            self._stopping = True
            self._engine.end()
        if self._callbacks is not None:
            self._callbacks.put(None)
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(GOODBYE)

    def after_fork(self) -> None:
        """In the child: lets go of the parent's connection without a word on it."""
        self._stopping = True
        for end in (self._socket, self._nudge_read, self._nudge_write):
            if end is not None:
                with contextlib.suppress(OSError):
                    os.close(end.detach())
        for reader in list(self._loop_readers):
            reader.close_copy()
        self._poller.after_fork()

    # The client's thread

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception as error:  # a defect here must not end renewals
                _warn("leasehold: {} in the client's thread", error)
                with contextlib.suppress(Exception):
                    self._drop(LeaseError("UNAVAILABLE", str(error)))
        with contextlib.suppress(Exception):
            self._drop(closed_error())
        with self._lock:
            self._ended = True
            self._poller.close()
            if self._reader is None:
                self._close_nudges()  # else that caller closes them: their numbers may be given to other files at once

    def _close_nudges(self) -> None:
        self._nudge_read.close()
        self._nudge_write.close()

    def _turn(self) -> None:
        with self._lock:
            self._run_posted()
            if self._engine.drop is not None:
                self._drop(self._engine.drop)
            if self._engine.wants_connection and not self._connecting:
                self._connecting = True
                address = self._addresses[self._next % len(self._addresses)]
                self._next += 1
                threading.Thread(target=self._connect, args=(address,), name="leasehold-connect", daemon=True).start()
            self._flush()
            self._watch()
            self._call(self._engine.take_calls())
            moment = self._engine.next_time(self._connecting)
            now = self._clock.read().monotonic
            # A client in use wakes now and then by itself, so that a call need not wake it for a timer that is far away.
            in_use = self._engine.channel.heard > now - 2 * IN_USE or isinstance(self._reader, LoopReader)
            longest = IN_USE if in_use else IDLE
            timeout = longest if moment is None else max(0.0, min(moment - now, longest))
            self._sleeps_until = now + timeout
        pending: Callable[[], int] | None = getattr(self._socket, "pending", None)  # TLS may have decrypted more than was read
        self._poller.sleep(0 if self._jobs or (pending is not None and pending() > 0) else timeout)
        self._sleeps_until = float("-inf")
        with self._lock:
            self._take_back()
            # Read first, then judge: after a stall an answer may be waiting in the socket.
            self._receive()
            self._engine.tick()

    def _call(self, calls: list[Callable[[], None]]) -> None:
        """Callbacks run on a thread of their own: one that blocks must not stop renewals."""
        if not calls:
            return
        if self._callbacks is None:
            self._callbacks = queue.SimpleQueue()
            threading.Thread(target=self._run_callbacks, args=(self._callbacks,), name="leasehold-callbacks", daemon=True).start()
        self._callbacks.put(calls)

    def _run_callbacks(self, calls: queue.SimpleQueue[list[Callable[[], None]] | None]) -> None:
        while (batch := calls.get()) is not None:
            for call in batch:
                run_callback(call)
            self.post(lambda engine: engine.calls_done())

    def _connect(self, address: Address) -> None:
        try:
            made = address.dial(CONNECT_TIMEOUT)
            made.setblocking(False)
        except Exception as error:
            failure = LeaseError("UNAVAILABLE", f"{address} cannot be reached: {error}")
            self._jobs.append(lambda: self._failed(failure))
        else:
            self._jobs.append(lambda: self._made(made, address))
        self._wake()

    def _failed(self, error: LeaseError) -> None:
        self._connecting = False
        self._engine.disconnected(error)

    def _made(self, made: socket.socket, address: Address) -> None:
        self._connecting = False
        if self._stopping:
            made.close()
            return
        self._socket = made
        self._address = str(address)
        self._poller.add(made)
        self._watch()
        if CALLERS_READ:
            self._input = self._new_input(made)
        self._engine.connected()

    def _flush(self) -> None:
        if self._socket is None:
            return
        self._unsent += self._engine.take_sends()
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except self._try_again:
            pass
        except OSError:
            self._unsent = b""  # the client's thread finds out when it reads

    def _watch(self) -> None:
        """Sets what the client's thread watches the socket for. Takes effect at once, even while that thread sleeps."""
        self._poller.watch((READ if self._reader is None else 0) | (WRITE if self._unsent else 0))

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(_CHUNK)
            except self._try_again:
                return
            except OSError as error:
                return self._drop(LeaseError("UNAVAILABLE", f"the connection to {self._address} broke: {error}"))
            if not data:
                return self._drop(LeaseError("UNAVAILABLE", f"{self._address} has closed the connection"))
            try:
                self._engine.received(data)
            except ProtocolError as error:
                hint = " It speaks TLS: write leaseholds://." if data[:1] == b"\x15" else ""
                text = f"{self._address} does not speak as a server of ours does: {error}.{hint}"
                return self._drop(LeaseError("UNAVAILABLE", text))
            except Exception as error:  # a defect here must not end renewals, nor come out of the call of a user
                _warn("leasehold: {} in an answer", error)
                return self._drop(LeaseError("UNAVAILABLE", str(error)))
            if len(data) < _CHUNK and self._plain:
                return

    def _drop(self, error: LeaseError) -> None:
        with self._lock:
            if self._socket is None:
                return
            self._poller.remove()
            if self._loop_readers:
                # Their copies keep it open. This ends the connection, and tells them.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
            self._unsent = b""
            if isinstance(self._reader, LoopReader):
                self._reader = None
            self._nudge()
            self._engine.disconnected(error)


def run_callback(call: Callable[[], None]) -> None:
    """Runs the user's code. What it raises becomes a warning: no caller could catch it."""
    try:
        call()
    except Exception as error:
        _warn("leasehold: a callback failed: {}", error)


def _warn(text: str, error: Exception) -> None:
    text = text.format(repr(error))
    with contextlib.suppress(Exception):  # a handler that fails
        log_failure(text, error)
    with contextlib.suppress(Warning):  # where warnings are errors
        warnings.warn(text, RuntimeWarning, stacklevel=3)


_RUNNERS: weakref.WeakSet[Runner] = weakref.WeakSet()


def _at_exit() -> None:
    for runner in list(_RUNNERS):
        with contextlib.suppress(Exception):
            runner.close()


def _after_fork() -> None:
    for runner in list(_RUNNERS):
        runner.after_fork()
    _RUNNERS.clear()


atexit.register(_at_exit)
in_child(_after_fork)
