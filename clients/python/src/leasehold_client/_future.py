"""A result that is still to come: what the engine gives to a caller that waits.

``concurrent.futures.Future`` does the same, and takes longer to make than a request takes to write; importing it takes a third of the time
that this package takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ._fork import in_child

T = TypeVar("T")


class Cancelled(Exception):
    """Its caller has gone."""


class Future(Generic[T]):
    """Done once: with a value, with an error, or cancelled. Any thread may use it."""

    __slots__ = ("_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return isinstance(self._error, Cancelled)

    def set_result(self, value: T) -> bool:
        """False: it was done before, and keeps what it has."""
        return self._end(value, None)

    def set_exception(self, error: BaseException) -> bool:
        """False: it was done before, and keeps what it has."""
        return self._end(None, error)

    def cancel(self) -> bool:
        """False: it was done before, and keeps what it has."""
        return self._end(None, Cancelled())

    def _end(self, value: Any, error: BaseException | None) -> bool:
        with _lock:
            if self._done:
                return False
            self._value, self._error = value, error
            self._done = True
        self._call()
        return True

    def _call(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return  # the last one is called by another thread
            callback(self)

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Calls it on the thread that ends this; at once, on this thread, if it is done."""
        self._callbacks.append(callback)
        if self._done:
            self._call()

    def exception(self) -> BaseException | None:
        """The error of one that is done."""
        return self._error

    def result(self, timeout: float | None = None) -> T:
        """Blocks until it is done, or raises ``TimeoutError``."""
        if not self._done and not self.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until it is done. False: not within ``timeout``."""
        if self._done:
            return True
        event = threading.Event()
        self.add_done_callback(lambda future: event.set())
        return event.wait(timeout)


#: Held for a few steps, never while anything is waited for. A signal handler may make a call while its thread has it.
_lock = threading.RLock()


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


in_child(_new_lock)
