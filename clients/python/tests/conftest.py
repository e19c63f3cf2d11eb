from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from leasehold_client.testing import World

from .socket_server import SocketServer

# For the processes that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(pathlib.Path(__file__).resolve().parents[1] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


@pytest.fixture
def server() -> Iterator[SocketServer]:
    server = SocketServer()
    yield server
    server.close()
