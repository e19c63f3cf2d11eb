"""Holds back signal handlers while the engine is used on the main thread.

Python runs the handlers of signals on the main thread, between any two steps of whatever runs there, and Ctrl-C, a timeout by SIGALRM or an
orderly end by SIGTERM raise an exception from there. The engine must not be left in the middle of a step: a request that is noted as sent
and was not shifts every later answer by one. A handler that is held back runs right after the step, a fraction of a millisecond later.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

#: Its functions are those of ``signal`` without the conversion to enums, which takes ten times as long.
_fast: Any = import_module("_signal")
#: Signals whose handlers programs let raise.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGBREAK")
_NUMBERS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))

Handler = Callable[[int, "FrameType | None"], Any]


class SignalsHeldBack:
    """A context manager. Does nothing on other threads than the main one: no handler runs there."""

    __slots__ = ("_active", "_arrived", "_former")

    def __init__(self) -> None:
        self._former: list[tuple[int, Handler]] = []
        self._arrived: list[tuple[int, FrameType | None]] = []
        self._active = False

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        self._active = True
        try:
            for number in _NUMBERS:
                handler = _fast.getsignal(number)
                if callable(handler):
                    self._former.append((number, handler))
                    _fast.signal(number, self._note)
        except ValueError:
            self._former.clear()  # not the main interpreter: it runs no handlers
        except BaseException:
            # A handler that was not replaced yet has raised.
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._former:
            return
        self._restore()
        if self._arrived:
            former = dict(self._former)
            for number, frame in self._arrived:
                former[number](number, frame)

    def _restore(self) -> None:
        # From here on a handler that is still replaced passes the signal on, so that none is lost if one of them raises meanwhile.
        self._active = False
        try:
            self._put_back()
        except BaseException:
            self._put_back()  # a handler that was put back has raised: otherwise the others would be replaced for ever
            raise

    def _put_back(self) -> None:
        for number, handler in self._former:
            _fast.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._active:
            self._arrived.append((number, frame))
        else:
            dict(self._former)[number](number, frame)
