"""Against a real server. Set LEASEHOLD_TEST_SERVER to the command that runs `leasehold`, such as `node dist/cli/leasehold.js`."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

import leasehold
import leasehold.aio
from leasehold import LeaseError, _channel
from leasehold._resp import command

COMMAND = os.environ.get("LEASEHOLD_TEST_SERVER", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="LEASEHOLD_TEST_SERVER is not set")


class Server:
    """One process of `leasehold serve`."""

    def __init__(self, store: str = "memory:") -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._store = store
        self.start()

    def start(self) -> None:
        words = [*shlex.split(COMMAND), "serve", "--store", self._store, "--listen", f"127.0.0.1:{self.port}"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server does not listen")

    @property
    def url(self) -> str:
        return f"leasehold://127.0.0.1:{self.port}"

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not know LEASE.GRANT yet is asked for a resource that nobody else names."""

    def stand_in(words: Iterable[str | int | bytes]) -> bytes:
        given = list(words)
        if given[0] == "LEASE.GRANT":
            given[:1] = ["LEASE.ACQUIRE", f"leasehold/python/{given[-1]!s}"]
        return command(given)

    monkeypatch.setattr(_channel, "command", stand_in)


def test_acquire_wait_and_release(server: Server) -> None:
    with leasehold.connect(server.url, holder="a") as a, leasehold.connect(server.url, holder="b") as b:
        places: list[int] = []
        with a.request("jobs/nightly", ttl=30) as first:
            assert b.try_acquire("jobs/nightly") is None
            assert a.show("jobs/nightly")["grants"][0]["holder"] == "a"
            got: list[leasehold.Lease] = []
            thread = threading.Thread(target=lambda: got.append(b.acquire("jobs/nightly", wait=20, on_wait=places.append)))
            thread.start()
            while not a.show("jobs/nightly")["queue"]:
                time.sleep(0.02)
        thread.join(20)
        assert got[0].token > first.token and places[0] == 0
        assert a.history("jobs/nightly")[0]["lease"] == first.id
        got[0].release()


def test_errors_have_the_codes_of_the_server(server: Server) -> None:
    with leasehold.connect(server.url) as leases:
        with pytest.raises(LeaseError) as caught:
            leases.acquire("k", ttl="2d")
        assert caught.value.code == "INVALID"
        with pytest.raises(LeaseError) as caught:
            leases.acquire("k", parent=12)
        assert caught.value.code == "GONE"
        assert leases.fence("f", 7) == 7
        with pytest.raises(LeaseError) as caught:
            leases.fence("f", 6)
        assert caught.value.code == "STALE"


def test_a_lease_survives_the_loss_of_its_connection_and_a_stall_of_the_server(server: Server) -> None:
    with leasehold.connect(server.url) as leases, leases.acquire("stalled", ttl=6) as lease:
        server.signal(signal.SIGSTOP)
        try:
            time.sleep(1.5)
            assert lease.held
        finally:
            server.signal(signal.SIGCONT)
        time.sleep(3.5)
        assert lease.held


def test_watch_election_session_registry_and_pool(server: Server, grants: None) -> None:
    with leasehold.connect(server.url, holder="a") as a, leasehold.connect(server.url, holder="b") as b:
        with a.watch("watched") as events:
            with b.acquire("watched/k"):
                assert next(events)[0]["type"] == "granted"
            assert next(events)[0]["type"] == "released"
        for term in a.election("office").terms():
            leader = b.election("office").leader()
            assert leader is not None and leader.token == term.token
            break
        with a.session() as session:
            lease = session.acquire("documents/42")
            session.put("presence/ann", "here")
            assert b.entries("presence")[0]["value"] == "here"
        assert lease.lost.wait(10)
        assert b.entries("presence") == []
        found = b.registry.discover("planner")
        with a.registry.register("planner", address="http://10.0.0.7:8080", metadata={"x": [1, 2]}) as me:
            me.update(load=3, status="warning")
            changes = found.changes()
            seen = next(changes).instance
            while (seen.status, seen.load) != ("warning", 3):
                seen = next(changes).instance
            assert seen.metadata == {"x": [1, 2]}
        while next(changes).type != "removed":
            pass
        offer = a.pool("gpu").offer("gpu-3")
        with b.pool("gpu").take(wait=10) as gpu:
            assert gpu.devices == ("3",)
        offer.release()


def test_asyncio(server: Server) -> None:
    async def main() -> None:
        async with leasehold.aio.connect(server.url) as leases:
            async with leases.request("aio", ttl=5) as lease:
                lease.assert_held()
                task = asyncio.create_task(leases.acquire("aio"))
                await asyncio.sleep(0.2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await leases.try_acquire("aio") is not None

    asyncio.run(asyncio.wait_for(main(), 30))


COUNTER = """
import pathlib, sys, leasehold
path = pathlib.Path(sys.argv[2])
with leasehold.connect(sys.argv[1], ttl=10) as leases:
    for _ in range(int(sys.argv[3])):
        with leases.request("counter", wait=120) as lease:
            highest, count = map(int, path.read_text().split())
            assert lease.token > highest
            lease.assert_held()
            path.write_text(f"{lease.token} {count + 1}")
"""


def test_processes_lose_no_update_while_the_server_is_killed(tmp_path: object) -> None:
    import pathlib

    folder = pathlib.Path(str(tmp_path))
    server = Server(f"file:{folder}/leases.db")
    counter = folder / "counter"
    counter.write_text("0 0")
    try:
        words = [sys.executable, "-c", COUNTER, server.url, str(counter), "40"]
        processes = [subprocess.Popen(words) for _ in range(3)]
        for _ in range(2):
            time.sleep(1)
            server.kill()
            server.start()
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        assert counter.read_text().split()[1] == "120"
    finally:
        server.kill()
