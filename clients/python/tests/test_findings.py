"""Known findings of the Python client."""

from __future__ import annotations

import asyncio
import copy
import gc
import warnings
from collections.abc import Iterator

import pytest

from leasehold import LeaseError
from leasehold.testing import World

from .known_finding import claim, known_finding


@known_finding("python-collected-lease")
def test_a_lease_to_which_the_program_keeps_no_reference_is_held(world: World) -> None:
    leases = world.connect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        leases.acquire("single-instance", ttl=20)
        gc.collect()
    world.advance(1)
    with claim():
        assert world.server.holder_of("single-instance") == "test"


@known_finding("python-collected-lease")
def test_copying_a_lease_is_refused(world: World) -> None:
    lease = world.connect().acquire("k", ttl=20)
    try:
        copied = copy.copy(lease)
    except (LeaseError, TypeError):
        return
    assert copied.id == lease.id
    with claim():
        raise AssertionError("the copy was made")


@known_finding("python-exclusive-coroutine")
def test_exclusive_on_a_coroutine_function_holds_the_lease_while_it_runs_or_is_refused(world: World) -> None:
    leases = world.connect()
    holders: list[str | None] = []

    async def report() -> None:
        holders.append(world.server.holder_of("reports"))

    try:
        exclusive = leases.exclusive("reports", ttl=20)(report)
    except (LeaseError, TypeError):
        return
    asyncio.run(exclusive())
    assert len(holders) == 1
    with claim():
        assert holders == ["test"]


@known_finding("python-exclusive-coroutine")
def test_exclusive_on_a_generator_function_holds_the_lease_while_it_runs_or_is_refused(world: World) -> None:
    leases = world.connect()
    holders: list[str | None] = []

    def rows() -> Iterator[int]:
        holders.append(world.server.holder_of("reports"))
        yield 1

    try:
        exclusive = leases.exclusive("reports", ttl=20)(rows)
    except (LeaseError, TypeError):
        return
    assert list(exclusive()) == [1]
    with claim():
        assert holders == ["test"]


@known_finding("python-nested-request")
def test_a_request_inside_a_request_for_the_same_name_is_invalid_at_once(world: World) -> None:
    leases = world.connect()
    before = world.clock.read().monotonic
    with leases.request("k", ttl=20), pytest.raises(LeaseError) as caught:
        leases.acquire("k", ttl=20, wait=5)
    passed = world.clock.read().monotonic - before
    with claim():
        assert (caught.value.code, passed < 1) == ("INVALID", True)


@known_finding("python-doubled-name")
def test_a_request_that_names_a_resource_twice_is_a_request_for_one_resource(world: World) -> None:
    try:
        resources = tuple(world.connect().acquire(["x", "x"], ttl=20).resources)
    except LeaseError as error:
        resources = (error.code,)
    with claim():
        assert resources == ("x",)


@known_finding("python-late-jeopardy")
def test_a_jeopardy_is_not_reported_after_the_loss(world: World) -> None:
    lease = world.connect().acquire("k", ttl=20)
    left: list[float] = []
    lease.on_jeopardy(left.append)
    world.stop_answering()
    world.stall(30)
    world.advance(1)
    assert not lease.held
    with claim():
        assert left == []


def test_only_a_failed_claim_is_the_expected_failure() -> None:
    def fails_outside() -> None:
        assert claim is None, "the set-up"

    def fails_otherwise() -> None:
        with claim():
            raise ValueError("a mistake in the test")

    def holds() -> None:
        with claim():
            assert claim is not None

    def fails() -> None:
        with claim():
            assert claim is None

    for body, error in ((fails_outside, "the set-up"), (fails_otherwise, "a mistake"), (holds, "is fixed here")):
        with pytest.raises((AssertionError, ValueError), match=error):
            known_finding("a finding")(body)()
    known_finding("a finding")(fails)()
