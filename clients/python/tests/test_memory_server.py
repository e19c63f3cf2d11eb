"""The stand-in for a server."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold_client import LeaseError
from leasehold_client.testing import ManualClock, World
from leasehold_client.testing._lease import Lease
from leasehold_client.testing._server import MemoryServer

from .test_waiting import begin


def test_a_waiter_gets_its_entries_with_the_grant(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k")
    waiting = begin(b, "k", entries={"e/k": "b"})
    world.advance(1)
    assert a.entries("e") == []
    lease.release()
    world.advance(1)
    assert waiting.done() and [entry["value"] for entry in a.entries("e")] == ["b"]


def test_a_request_that_recalls_tells_the_holders(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    told: list[str] = []
    a.acquire("k").on_recalled(told.append)
    world.advance(1)
    begin(b, "k", recall=True)
    world.advance(1)
    assert told == ["b"]


def test_a_callback_that_waits_in_virtual_time_is_told_so(world: World) -> None:
    leases = world.connect()
    leases.acquire("k", ttl=10).on_lost(lambda reason: leases.acquire("other").release())
    world.stop_answering()
    with pytest.warns(RuntimeWarning, match="a callback cannot wait in a World"):
        world.advance(11)


def test_a_request_is_not_compared_with_the_leases_on_other_names() -> None:
    server = MemoryServer(ManualClock())
    connection = server.connect()

    def acquire(name: str, *options: str) -> Any:
        return server.run(connection, ["LEASE.ACQUIRE", name, "TTL", "30000", "HOLDER", "a", *options])

    for i in range(200):
        acquire(f"k/{i}")
    looked = 0

    class Counting(dict[int, Lease]):
        def values(self) -> Any:
            nonlocal looked
            looked += len(self)
            return super().values()

    server._leases = Counting(server._leases)
    server.run(connection, ["LEASE.RELEASE", str(acquire("other")["lease"])])
    assert looked == 0
    with pytest.raises(LeaseError, match="held by a"):
        acquire("k", "COVERS")
