"""A real server for tests. Set LEASEHOLD_TEST_SERVER to the command that runs `leasehold`, such as `node dist/cli/leasehold.js`."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence

import pytest

from .bounds import EVENT_TIMEOUT

COMMAND = os.environ.get("LEASEHOLD_TEST_SERVER", "")
needs_server = pytest.mark.skipif(not COMMAND, reason="LEASEHOLD_TEST_SERVER is not set")


class Server:
    """One process of `leasehold serve`."""

    def __init__(self, store: str = "memory:", options: Sequence[str] = ()) -> None:
        self.port = 0  # the system chooses one, and a restart keeps it
        self._store = store
        self._options = options
        self.start()

    def start(self) -> None:
        words = [*shlex.split(COMMAND), "serve", "--store", self._store, "--listen", f"127.0.0.1:{self.port}", *self._options]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            address = re.search(r"://127\.0\.0\.1:(\d+)/", line)
            if address is not None:
                self.port = int(address[1])
                break
        else:
            raise RuntimeError("the server did not start")
        end = time.monotonic() + EVENT_TIMEOUT
        while time.monotonic() < end:
            try:
                self._try()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server does not listen")

    def _try(self) -> None:
        """Connects to every address. A server listens at one after another."""
        socket.create_connection(("127.0.0.1", self.port), 1).close()
        if "--socket" in self._options:
            with socket.socket(socket.AF_UNIX) as local:
                local.connect(self._options[self._options.index("--socket") + 1])

    @property
    def url(self) -> str:
        return f"leasehold://127.0.0.1:{self.port}"

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)
