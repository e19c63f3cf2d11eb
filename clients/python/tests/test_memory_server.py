"""The stand-in for a server."""

from __future__ import annotations

import pytest

from leasehold_client.testing import World

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
