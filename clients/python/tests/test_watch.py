"""Watches: in order, once, over one connection after another."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold_client import LeaseError
from leasehold_client.testing import World


def types(revision: list[dict[str, Any]]) -> list[str]:
    return [str(event["type"]) for event in revision]


def test_events_come_in_order(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    with a.watch("jobs") as events:
        lease = b.acquire("jobs/x")
        b.acquire("other/x").release()
        lease.release()
        assert [types(next(events)), types(next(events))] == [["granted"], ["released"]]


def test_two_readers_of_a_prefix_share_one_watch(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    with a.watch("jobs") as first, a.watch("jobs") as second:
        b.acquire("jobs/x").release()
        assert types(next(first)) == types(next(second)) == ["granted"]
    assert len([words for words in world.server.commands if words[0] == "LEASE.WATCH"]) == 1
    assert len([words for words in world.server.commands if words[0] == "LEASE.UNWATCH"]) == 1


def test_a_watch_goes_on_after_the_last_revision_it_has_seen(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    with a.watch("jobs") as events:
        lease = b.acquire("jobs/x")
        seen = next(events)
        world.cut()
        world.advance(1)
        asked = [words for words in world.server.commands if words[0] == "LEASE.WATCH"]
        assert asked == [["LEASE.WATCH", "jobs"], ["LEASE.WATCH", "jobs", "AFTER", str(seen[0]["revision"])]]
        lease.release()
        assert types(next(events)) == ["released"]


def test_a_log_that_was_put_back_is_told_as_a_resync(world: World) -> None:
    a = world.connect("a")
    with a.watch("jobs") as events:
        world.server.rewind()
        world.cut()
        world.advance(1)
        assert types(next(events)) == ["resync"]


def test_a_directory_is_read_anew_after_the_log_was_put_back(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    a.registry.register("planner", ttl=30)
    found = b.registry.discover("planner")
    assert len(found.list()) == 1
    world.server.rewind()
    world.cut()
    world.advance(0.2)
    assert found.list() == []
    world.advance(60)
    assert len(found.list()) == 1  # it has registered again


def test_closing_ends_a_watch(world: World) -> None:
    a = world.connect("a")
    with a.watch("jobs") as events:
        a.close()
        assert list(events) == []


def test_a_watch_that_is_refused_says_why(world: World) -> None:
    def refuse(connection: Any, words: list[str]) -> Any:
        raise LeaseError("FORBIDDEN", "this key may not watch")

    world.server._watch = refuse  # type: ignore[method-assign]
    a = world.connect("a")
    with pytest.raises(LeaseError) as caught, a.watch("jobs"):
        pass
    assert caught.value.code == "FORBIDDEN"
    with pytest.raises(LeaseError) as caught:
        a.registry.discover("planner").list()
    assert caught.value.code == "FORBIDDEN"
