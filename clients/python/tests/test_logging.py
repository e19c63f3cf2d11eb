"""What the client reports to ``logging``."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

import leasehold_client
from leasehold_client.testing import World

from .bounds import EVENT_TIMEOUT
from .socket_server import SocketServer

NAME = "leasehold_client"


def texts(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME and record.levelno == level]


def test_a_lost_lease_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.stop_answering()
    world.advance(11)
    assert f"k (lease {lease.id}) is lost: no renewal was answered for 9.9 s" in texts(caplog, logging.WARNING)


def test_a_release_is_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    leases = world.connect()
    leases.acquire("k").release()
    leases.close()
    assert texts(caplog, logging.WARNING) == []


def test_a_broken_connection_is_a_warning_and_the_next_one_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    leases = world.connect()
    leases.acquire("k")
    world.cut()
    world.advance(5)
    assert texts(caplog, logging.WARNING) == ["the connection broke; connecting again, with leases held: 1"]
    assert texts(caplog, logging.INFO) == ["connected", "connected again"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_callback_that_fails_is_an_error_with_its_traceback(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(reason: object) -> None:
        raise KeyError("of the callback")

    world.connect().acquire("k", ttl=10).on_lost(fail)
    world.stop_answering()
    world.advance(11)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "a callback failed" in record.getMessage() and record.exc_info is not None and record.exc_info[0] is KeyError


def test_a_handler_may_wait_for_a_lease(server: SocketServer) -> None:
    done = threading.Event()
    with leasehold_client.connect(server.url) as leases, leases.acquire("k"):

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                leases.acquire("other")
                done.set()

        logger, handler = logging.getLogger(NAME), Handler(logging.WARNING)
        logger.addHandler(handler)
        try:
            server.cut()
            assert done.wait(EVENT_TIMEOUT)
        finally:
            logger.removeHandler(handler)


SCRIPT = """
import sys
from leasehold_client.testing import World
world = World()
world.connect().acquire("k", ttl=10)
world.stop_answering()
world.advance(11)
print("logging" in sys.modules)
"""


@pytest.mark.parametrize("first", ["", "import logging"])
def test_a_program_that_configures_no_logging_prints_nothing(first: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-c", first + SCRIPT], check=True, capture_output=True, text=True, timeout=120)
    assert done.stderr == "" and done.stdout.strip() == str(bool(first))
