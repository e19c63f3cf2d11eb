"""What the client's thread sleeps on: its socket, and a wake-up from other threads."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Poller:
    """``watch`` is called under the runner's lock, and takes effect at once, even while the client's thread sleeps."""

    def __init__(self) -> None:
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        #: Where there is epoll, a change is one system call. The module ``selectors`` takes ten times as long, and every call makes two.
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._selector = None if self._epoll is not None else selectors.DefaultSelector()
        if self._epoll is not None:
            self._epoll.register(self._wake_read.fileno(), select.EPOLLIN)
        if self._selector is not None:
            self._selector.register(self._wake_read, READ)
        self._socket: socket.socket | None = None
        self._file = -1
        self._watched = 0

    def watch(self, wanted: int) -> None:
        """``READ``, ``WRITE``, both or 0."""
        if wanted == self._watched or self._socket is None:
            return
        if self._epoll is not None:
            # Without any event, it still reports that the connection has ended: the thread reads then, and finds out.
            events = (select.EPOLLIN if wanted & READ else 0) | (select.EPOLLOUT if wanted & WRITE else 0)
            self._epoll.modify(self._file, events)
        elif self._selector is not None:
            if self._watched != 0:
                self._selector.unregister(self._socket)
            if wanted != 0:
                self._selector.register(self._socket, wanted)
        self._watched = wanted

    def add(self, made: socket.socket) -> None:
        self._socket, self._file, self._watched = made, made.fileno(), 0
        if self._epoll is not None:
            self._epoll.register(self._file, 0)

    def remove(self) -> None:
        """Before the socket is closed: its number may be given to another file at once."""
        if self._epoll is not None and self._socket is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(self._file)
        elif self._selector is not None and self._watched != 0 and self._socket is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._socket)
        self._socket, self._file, self._watched = None, -1, 0

    def sleep(self, timeout: float) -> None:
        """Until the socket is ready, ``wake`` was called, or the time is over."""
        if self._epoll is not None:
            self._epoll.poll(timeout)
        elif self._selector is not None:
            self._selector.select(timeout)
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def close(self) -> None:
        for end in (self._wake_read, self._wake_write, self._epoll or self._selector):
            if end is not None:
                end.close()

    def after_fork(self) -> None:
        """In the child: closes its copies."""
        for end in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(end.detach())
        with contextlib.suppress(Exception):
            (self._epoll or self._selector).close()  # type: ignore[union-attr]
