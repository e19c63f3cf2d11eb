"""Lets an event loop read the socket of a runner, so that a coroutine gets its answer without another thread.

The loop watches a copy of the socket's file descriptor, which only the loop's thread closes: the number of the socket itself may be given
to another file while the loop still watches it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import socket

    from ._runner import Runner


class LoopReader:
    """One loop and one socket. Its methods are called on the loop's thread."""

    __slots__ = ("__weakref__", "_file", "_loop", "_runner", "_socket", "reads")

    def __init__(self, runner: Runner, loop: asyncio.AbstractEventLoop, here: socket.socket) -> None:
        self._runner = runner
        self._loop = loop
        self._socket = here
        #: How often it has read. Until it has, the client's thread cannot know that the loop runs.
        self.reads = 0
        self._file = -1
        with contextlib.suppress(OSError, NotImplementedError):  # loops of Windows watch no files: there the client's thread reads
            copy = os.dup(here.fileno())
            try:
                loop.add_reader(copy, self._ready)
                self._file = copy
            finally:
                if self._file < 0:
                    os.close(copy)

    @property
    def works(self) -> bool:
        return self._file >= 0

    def serves(self, loop: asyncio.AbstractEventLoop, here: socket.socket | None) -> bool:
        return self._loop is loop and self._socket is here

    def _ready(self) -> None:
        self.reads += 1
        if not self._runner.read_in_loop(self._socket):
            self.end()

    def end(self) -> None:
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            self.close_copy()

    def close_copy(self) -> None:
        copy, self._file = self._file, -1
        if copy >= 0:
            with contextlib.suppress(OSError):
                os.close(copy)

    def __del__(self) -> None:
        # The loop was closed, and has forgotten it.
        self.close_copy()
