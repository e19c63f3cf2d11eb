"""The stand-in for a server behind a real socket, for tests of threads, forks and event loops."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
from typing import Any

from leasehold_client._clock import SystemClock
from leasehold_client.testing import MemoryServer
from leasehold_client.testing._connection import Connection


class SocketServer:
    """Serves on a port of this machine until it is closed."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        clock: Any = SystemClock()
        self.memory = MemoryServer(clock)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, Connection] = {}
        self._over = False
        self.silent = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        scheme, host = ("leasehold", "127.0.0.1") if self._tls is None else ("leaseholds", "localhost")
        return f"{scheme}://{host}:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.01):
                if key.fileobj is self._listener:
                    with contextlib.suppress(OSError):
                        self._accept()
                elif not self.silent:
                    self._read(key.fileobj)
            self.memory.tick()
            for peer, connection in list(self._peers.items()):
                if connection.out and not self.silent:
                    with contextlib.suppress(OSError):
                        sent = peer.send(bytes(connection.out))
                        del connection.out[:sent]

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        if self._tls is not None:
            peer.settimeout(5)
            peer = self._tls.wrap_socket(peer, server_side=True)
        peer.setblocking(False)
        self._peers[peer] = self.memory.connect()
        self._selector.register(peer, selectors.EVENT_READ)

    def _read(self, peer: Any) -> None:
        while True:
            try:
                data = peer.recv(65_536)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            except OSError:
                data = b""
            if not data:
                return self._drop(peer)
            self._peers[peer].received(data)

    def _drop(self, peer: socket.socket) -> None:
        self._selector.unregister(peer)
        self._peers.pop(peer).close()
        peer.close()

    def cut(self) -> None:
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._over = True
        self._thread.join(5)
        for peer in list(self._peers):
            self._drop(peer)
        self._listener.close()
        self._selector.close()
