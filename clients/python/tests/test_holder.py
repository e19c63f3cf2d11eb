"""The rules of a holder: until when a lease is valid, and what its user is told."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable

import pytest

from leasehold_client import LeaseError, LeaseLost
from leasehold_client._held import margin
from leasehold_client.testing import World


def asked(world: World, name: str) -> list[list[str]]:
    return [words for words in world.server.commands if words[0] == name]


def test_a_lease_is_renewed_for_as_long_as_the_server_answers(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.advance(1_000)
    assert lease.held
    assert 190 < len(asked(world, "LEASE.RENEW")) < 240


def test_a_lease_that_is_not_renewed_expires_at_its_deadline_not_before(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.stop_answering()
    world.advance(9.89)
    assert lease.held and not lease.lost.is_set()
    world.advance(0.02)
    assert not lease.held and lease.lost.is_set()
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "unreachable"


def test_a_lease_to_which_the_program_keeps_no_reference_is_held(world: World) -> None:
    leases = world.connect()
    leases.acquire("single-instance", ttl=20)
    lost = leases.acquire("other", ttl=20).lost
    leases.session(ttl=20, renew="half").acquire("desk", ttl=20)
    gc.collect()
    world.advance(100)
    assert [world.server.holder_of(name) for name in ("single-instance", "other", "desk")] == ["test"] * 3
    assert not lost.is_set()
    leases.close()
    assert [world.server.holder_of(name) for name in ("single-instance", "other", "desk")] == [None] * 3


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_lease_that_is_copied_or_pickled_says_what_to_do_instead(world: World, copied: Callable[[object], object]) -> None:
    lease = world.connect().acquire("k", ttl=20)
    with pytest.raises(LeaseError, match=r"send lease.token; .* use lease.transfer\(\)") as caught:
        copied(lease)
    assert caught.value.code == "INVALID" and caught.value.facts["lease"] == lease.id and lease.held


def test_the_margin_is_twice_the_clock_error_and_more_of_short_terms() -> None:
    assert margin(100, 0.005) == pytest.approx(1.0)
    assert margin(1, 0.005) == pytest.approx(0.05)
    assert margin(0.2, 0.005) == pytest.approx(0.02)


def test_a_term_is_counted_from_before_the_request_was_sent(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k", ttl=10)
    world.advance(4.4)
    world.lose_answers()
    world.advance(1.6)  # a renewal was sent between 4.5 and 5, and its answer is withheld
    world.answer()
    assert 4.5 + 9.9 - 6 <= lease.remaining() <= 5 + 9.9 - 6


def test_an_answer_after_the_deadline_does_not_bring_the_lease_back(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.lose_answers()
    world.advance(9.8)
    world.clock.move(0.2)
    assert not lease.held  # a caller was told
    world.answer()
    world.advance(1)
    assert not lease.held and lease.lost.is_set()


def test_after_a_stall_an_answer_that_waits_in_the_socket_is_read_before_the_lease_is_judged(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.advance(4.4)
    world.lose_answers()
    world.advance(1.6)
    world.losing = False
    world.stall(5)  # the answers to renewals sent before the stall are read first
    assert lease.held


def test_a_process_that_stood_still_learns_of_its_loss_from_the_clocks(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.advance(1)
    world.clock.move(60)
    assert not lease.held  # before any timer has fired
    with pytest.raises(LeaseLost):
        lease.assert_held()
    world.stall(0)
    assert lease.lost.is_set()
    assert lease.reason is not None and lease.reason.facts["cause"] == "stall"


def test_a_stall_is_named_as_the_cause_also_when_the_server_says_first_that_the_lease_is_gone(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.stop_answering()
    world.advance(5.5)  # a renewal is under way
    world.silent = False
    world.stall(60)
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "stall"


def test_a_short_stall_does_not_hide_a_longer_one_before(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k", ttl=10)
    leases.acquire("other", ttl=30)
    world.unreachable()
    world.stall(8)  # its renewal and retries fail from here on
    for _ in range(10):
        world.stall(0.2)
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "stall"


def test_a_moment_between_the_readings_of_the_two_clocks_is_not_named_as_a_sleep(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k", ttl=10)
    leases.acquire("other", ttl=30)
    world.unreachable()
    world.clock.sleep_machine(0.03)
    world.stall(8)
    world.stall(2)
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "stall"


def test_a_machine_that_slept_learns_of_its_loss_although_its_monotonic_clock_stood_still(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.clock.sleep_machine(60)
    assert not lease.held
    world.suspend(0)
    assert lease.lost.is_set()
    assert isinstance(lease.reason, LeaseLost)
    assert lease.reason.cause == "suspend" and lease.reason.duration == pytest.approx(60)


def test_a_short_sleep_renews_at_once(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.suspend(3)
    assert lease.held and lease.remaining() == pytest.approx(9.9)


def test_after_a_jump_of_the_wall_clock_a_lease_is_not_held_until_it_is_renewed(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.stop_answering()
    world.clock.step_wall(120)
    assert not lease.held
    world.advance(1)
    assert not lease.held and not lease.lost.is_set()
    world.answer()
    assert lease.held


def test_slews_of_the_wall_clock_change_nothing(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    for _ in range(20):
        world.clock.step_wall(0.2)
        world.advance(0.3)
        assert lease.held


def test_a_revoked_lease_is_lost_with_the_name_of_the_operator(world: World) -> None:
    told: list[LeaseError] = []
    lease = world.connect().acquire("k", ttl=10)
    lease.on_lost(told.append)
    world.server.revoke(lease.id, by="ann")
    world.advance(5)
    assert [error.facts["cause"] for error in told] == ["revoked"]
    assert told[0].facts["by"] == "ann" and "by ann" in told[0].message
    with pytest.raises(LeaseLost):
        lease.assert_held()


def test_a_lost_lease_is_given_back_after_its_callbacks(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    order: list[str] = []
    lease.on_lost(lambda error: order.append(f"stopped, {len(asked(world, 'LEASE.RELEASE'))} released"))
    world.server.revoke(lease.id)
    world.advance(6)
    assert order == ["stopped, 0 released"]
    assert asked(world, "LEASE.RELEASE") == [["LEASE.RELEASE", str(lease.id)]]


def test_a_lease_that_its_holder_lost_is_given_back_with_the_cause(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10, max_hold=3)
    world.advance(4)
    assert asked(world, "LEASE.RELEASE") == [["LEASE.RELEASE", str(lease.id), "LOST", "max-hold"]]


def test_a_release_stops_first_and_then_tells(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.stop_answering()
    with pytest.raises(LeaseError) as caught:
        lease.release()
    assert caught.value.code == "UNKNOWN" and not lease.held


def test_releasing_twice_is_harmless(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    lease.release()
    lease.release()
    assert len(asked(world, "LEASE.RELEASE")) == 1
    with pytest.raises(LeaseError) as caught:
        lease.assert_held()
    assert caught.value.code == "GONE"


def test_the_second_to_ask_is_told_who_has_it(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    with a.acquire("k"):
        assert b.try_acquire("k") is None
    second = b.try_acquire("k")
    assert second is not None and second.held


def test_request_raises_lost_when_the_block_was_not_told(world: World) -> None:
    leases = world.connect()
    with pytest.raises(LeaseLost), leases.request("k", ttl=10):
        world.stop_answering()
        world.advance(20)
        world.answer()


def test_request_does_not_raise_twice(world: World) -> None:
    leases = world.connect()
    with pytest.raises(LeaseLost) as caught, leases.request("k", ttl=10) as lease:
        world.stop_answering()
        world.advance(20)
        world.answer()
        lease.assert_held()
    assert caught.value.__context__ is None


def test_a_parent_takes_its_children_with_it(world: World) -> None:
    leases = world.connect()
    parent = leases.acquire("p", ttl=10)
    child = leases.acquire("c", ttl=10, parent=parent)
    parent.release()
    assert not child.held and child.lost.is_set()
    assert isinstance(child.reason, LeaseLost) and child.reason.cause == "parent"


def test_a_log_that_was_put_back_ends_what_is_held(world: World) -> None:
    lease = world.connect().acquire("k", ttl=10)
    world.server.rewind()
    world.cut()
    world.advance(0.2)
    assert not lease.held
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "rewound"
    assert asked(world, "LEASE.RELEASE") == []


def test_closing_gives_everything_back(world: World) -> None:
    leases = world.connect()
    held = [leases.acquire(f"k/{i}") for i in range(20)]
    leases.close()
    assert [lease.held for lease in held] == [False] * 20
    assert world.server.holder_of("k/7") is None
    with pytest.raises(LeaseError) as caught:
        leases.acquire("k")
    assert caught.value.code == "UNAVAILABLE"


def test_closing_without_a_server_takes_a_second(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k")
    world.stop_answering()
    began = world.clock.read().monotonic
    leases.close()
    assert world.clock.read().monotonic - began <= 1.5 and not lease.held


def test_activity_renews_and_its_absence_ends(world: World) -> None:
    lease = world.connect().acquire("k", ttl=60, renew="on-activity")
    assert lease.remaining() == pytest.approx(60 * 0.99, abs=0.1)  # not the first term of 30 s
    for _ in range(20):
        world.advance(20)
        lease.touch()
    assert lease.held
    world.advance(90)
    assert isinstance(lease.reason, LeaseLost) and lease.reason.cause == "inactive"


def test_errors_survive_pickling() -> None:
    lost = LeaseLost("LOST", "k is lost", {"cause": "stall", "ms": 5})
    again = pickle.loads(pickle.dumps(lost))
    assert isinstance(again, LeaseLost) and again.cause == "stall" and again.duration == 0.005
    error = pickle.loads(pickle.dumps(LeaseError("HELD", "text", {"holder": "a"})))
    assert (error.code, str(error)) == ("HELD", "HELD: text")


@pytest.mark.parametrize(
    "options",
    [{"ttl": "30"}, {"ttl": -1}, {"ttl": True}, {"ttl": float("nan")}, {"wait": 0}, {"mode": "both"}, {"renew": "never"}, {"tll": 3}],
)
def test_wrong_options_are_refused_before_anything_is_sent(world: World, options: dict[str, object]) -> None:
    with pytest.raises(LeaseError) as caught:
        world.connect().acquire("k", **options)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID"
    assert asked(world, "LEASE.ACQUIRE") == []


def test_a_lease_says_when_it_expires(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire("k", ttl=10)
    assert lease.expires_at == pytest.approx(world.clock.wall() + 9.9, abs=0.001)
    lease.release()
    assert lease.expires_at is None
