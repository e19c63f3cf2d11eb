"""Requests over a bad network: repeated under the same operation, late answers, silence, several addresses, hostile servers."""

from __future__ import annotations

import pytest

from leasehold_client import LeaseError
from leasehold_client._engine import Engine, Options
from leasehold_client._resp import ProtocolError
from leasehold_client._timers import Timers
from leasehold_client.testing import ManualClock, World
from leasehold_client.testing._connection import encode

from .test_waiting import begin


def asked(world: World, name: str) -> list[list[str]]:
    return [words for words in world.server.commands if words[0] == name]


def ready(engine: Engine) -> None:
    engine.connected()
    engine.take_sends()
    engine.received(encode({"server": "leasehold", "witness": "", "continues": 1}))


def sent(engine: Engine) -> list[list[str]]:
    from leasehold_client.testing import MemoryServer

    server = MemoryServer(ManualClock())
    connection = server.connect()
    connection.received(engine.take_sends())
    return server.commands


def test_what_was_on_a_connection_that_broke_is_asked_again_under_the_same_operation(world: World) -> None:
    leases = world.connect()
    leases.acquire("other")
    world.lose_answers()
    pending = begin(leases, "k", ttl=10)
    assert world.server.holder_of("k") == "test"
    world.losing = False
    world._owners[0].connection.out.clear()  # type: ignore[union-attr]
    world.cut()
    world.advance(1)
    first, again = [words for words in asked(world, "LEASE.ACQUIRE") if words[1] == "k"]
    assert first == again and pending.result(0).held
    # Counted from before the first copy was sent.
    assert pending.result(0).remaining() == pytest.approx(9.9 - 1, abs=0.001)


def give_up_acquiring(world: World) -> None:
    """Asks for "k", whose answer does not come, until the caller is told that the outcome is unknown."""
    leases = world.connect(ttl=5)
    leases.acquire("other", ttl=120)
    world.lose_answers()
    core = leases._core
    request = core.asked("try_acquire", "k", {"ttl": 60}, False)
    pending = core.do(lambda engine: engine.acquire(request))
    core.engine.channel._expire(core.engine.channel._in_flight[-1])
    with pytest.raises(LeaseError) as caught:
        pending.result(0)
    assert caught.value.code == "UNKNOWN"


def test_a_grant_that_comes_after_the_caller_gave_up_is_given_back(world: World) -> None:
    give_up_acquiring(world)
    world.answer()
    world.advance(1)
    assert world.server.holder_of("k") is None


def test_an_acquire_whose_caller_was_told_unknown_is_sent_again_and_what_it_was_granted_is_given_back(world: World) -> None:
    give_up_acquiring(world)
    # The answer is lost with its connection, and the lease is held by this client.
    world.losing = False
    world._owners[0].connection.out.clear()  # type: ignore[union-attr]
    assert world.server.holder_of("k") == "test"
    world.cut()
    world.advance(1)
    assert world.server.holder_of("k") is None
    first, again = [words for words in asked(world, "LEASE.ACQUIRE") if words[1] == "k"]
    assert first == again


def test_an_answer_slower_than_the_ttl_is_no_lease() -> None:
    clock = ManualClock()
    engine = Engine(Options("h"), clock)
    ready(engine)
    core_future = engine.acquire(__import__("leasehold_client._acquire", fromlist=["x"]).AcquireRequest(("k",), 2.0))
    assert sent(engine)[0][0] == "LEASE.ACQUIRE"
    clock.move(3)
    engine.received(encode({"lease": 7, "token": 8, "ttl": 2000, "revision": 1}))
    assert sent(engine) == [["LEASE.RENEW", "7"]]  # too little is left: ask until when it is ours
    engine.received(encode([-1]))
    with pytest.raises(LeaseError) as caught:
        core_future.result(0)
    assert caught.value.code == "LOST" and caught.value.facts["cause"] == "late-answer"
    assert sent(engine) == [["LEASE.RELEASE", "7"]]


def test_without_an_answer_a_change_is_unknown_and_a_read_unavailable(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k", ttl=600)
    world.stop_answering()
    with pytest.raises(LeaseError) as caught:
        lease.put("a", "b")
    assert caught.value.code == "UNKNOWN"
    with pytest.raises(LeaseError) as caught:
        leases.show("k")
    assert caught.value.code == "UNAVAILABLE"


def test_unavailable_from_the_server_means_not_done_only_for_the_first_copy() -> None:
    clock = ManualClock()
    engine = Engine(Options("h"), clock)
    ready(engine)
    future = engine.change("LEASE.PUT", 1, "k", "v")
    engine.take_sends()
    engine.disconnected(LeaseError("UNAVAILABLE", "cut"))
    ready(engine)
    assert len(sent(engine)) == 1
    engine.received(b"-UNAVAILABLE stopping\r\n")
    assert not future.done()  # the first copy may have been carried out
    clock.move(1)
    engine.tick()
    assert len(sent(engine)) == 1
    engine.received(b"-FORBIDDEN no\r\n")
    with pytest.raises(LeaseError) as caught:
        future.result(0)
    assert caught.value.code == "UNKNOWN"
    second = engine.change("LEASE.PUT", 1, "k", "v")
    engine.received(b"-UNAVAILABLE stopping\r\n")
    with pytest.raises(LeaseError) as caught:
        second.result(0)
    assert caught.value.code == "UNAVAILABLE"


def test_a_silent_connection_is_replaced_in_time_to_renew(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    owner = world._owners[0]
    dead = owner.connection
    assert dead is not None
    dead.received = lambda data: None  # type: ignore[method-assign]
    world.advance(60)
    assert lease.held and owner.connection is not dead


def test_every_address_is_tried_before_the_first_pause_and_all_failures_are_told() -> None:
    clock = ManualClock()
    engine = Engine(Options("h", addresses=3), clock)
    future = engine.change("LEASE.PUT", 1, "k", "v")
    for i in range(3):
        assert engine.wants_connection
        engine.disconnected(LeaseError("UNAVAILABLE", f"host-{i}: refused"))
    with pytest.raises(LeaseError) as caught:
        future.result(0)
    assert caught.value.code == "UNAVAILABLE"
    assert all(f"host-{i}: refused" in caught.value.message for i in range(3))
    assert not engine.wants_connection


def test_a_refused_key_is_told_at_once_and_the_connection_is_given_up() -> None:
    engine = Engine(Options("h", "wrong"), ManualClock())
    future = engine.change("LEASE.PUT", 1, "k", "v")
    engine.connected()
    assert b"AUTH" in engine.take_sends()
    engine.received(b"-UNAUTHENTICATED this key is not known\r\n")
    with pytest.raises(LeaseError) as caught:
        future.result(0)
    assert caught.value.code == "UNAUTHENTICATED" and engine.drop is not None


@pytest.mark.parametrize("data", [b"+OK\r\n", b"%0\r\n", b"*1\r\n:1\r\n"])
def test_a_peer_that_greets_as_another_service_is_left(data: bytes) -> None:
    engine = Engine(Options("h"), ManualClock())
    engine.connected()
    engine.received(data)
    assert engine.drop is not None and "no Leasehold server" in engine.drop.message


def test_an_answer_to_nothing_is_a_protocol_error() -> None:
    engine = Engine(Options("h"), ManualClock())
    ready(engine)
    with pytest.raises(ProtocolError):
        engine.received(b"+OK\r\n")


@pytest.mark.parametrize(
    "push",
    [
        [],
        ["lease.granted"],
        ["lease.granted", "x", {}],
        ["lease.granted", 5, None],
        ["lease.events", "p", 1, "not json"],
        ["lease.events", 1],
        ["lease.unwatched", "p", 1],
        ["unknown", 1, 2],
    ],
)
def test_strange_pushes_are_ignored(push: list[object]) -> None:
    engine = Engine(Options("h"), ManualClock())
    ready(engine)
    engine.received(b">%d\r\n" % len(push) + b"".join(encode(item) for item in push))


@pytest.mark.parametrize(
    "answer",
    [None, "OK", [], [1, 2], {"lease": "x"}, {}, {"lease": 1}, {"lease": 1, "ttl": "x"}, {"lease": 1, "ttl": 9, "tokens": {"k": None}}],
)
def test_an_acquire_that_is_answered_with_something_else_fails(world: World, answer: object) -> None:
    world.server._acquire = lambda connection, words: answer  # type: ignore[method-assign]
    with pytest.raises(LeaseError) as caught:
        world.connect().try_acquire("k")
    assert caught.value.code == "UNKNOWN"


def test_renewals_that_are_answered_with_something_else_count_as_unanswered(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.server._renew = lambda connection, words: "OK"  # type: ignore[method-assign]
    world.advance(9)
    assert lease.held
    world.advance(1)
    assert not lease.held


def test_ten_thousand_leases_are_renewed_by_one_message_each_half_term(world: World) -> None:
    leases = world.connect(ttl=30)
    pending = [begin(leases, f"k/{i}") for i in range(10_000)]
    assert all(future.done() for future in pending)
    del world.server.commands[:]
    world.advance(60)
    renewals = asked(world, "LEASE.RENEW")
    assert 4 <= len(renewals) <= 6 and all(len(words) == 10_001 for words in renewals)
    assert all(future.result(0).held for future in pending)


def test_the_cost_of_a_release_does_not_grow_with_the_leases_in_hand() -> None:
    clock = ManualClock()
    timers = Timers()
    kept = [timers.at(1e9, lambda: None) for _ in range(1_000)]
    for _ in range(50_000):
        timers.at(2e9, lambda: None).cancel()
    assert len(timers) == len(kept) and len(timers._heap) < 5_000
    assert clock.read().monotonic == 1_000
