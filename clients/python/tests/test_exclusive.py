"""`exclusive`, and requests inside the block of another one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

import leasehold_client
import leasehold_client.aio
from leasehold_client import LeaseError
from leasehold_client.testing import World

from .server_process import Server, needs_server
from .socket_server import SocketServer


async def coroutine() -> None: ...


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


def function() -> None: ...


class Callables:
    @staticmethod
    def static() -> None: ...

    def __call__(self) -> Iterator[int]:
        yield 1


class CalledLater:
    async def __call__(self) -> str:
        return "done"


def test_a_coroutine_runs_under_the_lease_in_virtual_time(world: World) -> None:
    leases = world.connect()
    holders: list[str | None] = []

    @leases.exclusive("reports", ttl=20)
    async def report(number: int) -> int:
        holders.append(world.server.holder_of("reports"))
        await asyncio.sleep(0)
        holders.append(world.server.holder_of("reports"))
        return number

    assert asyncio.iscoroutinefunction(report) and report.__name__ == "report"
    assert asyncio.run(report(7)) == 7
    assert holders == ["test", "test"] and world.server.holder_of("reports") is None


@pytest.mark.parametrize("connect", [leasehold_client.connect, leasehold_client.aio.connect])
def test_coroutines_run_one_at_a_time_with_either_client(server: SocketServer, connect: Callable[..., Any]) -> None:
    running: list[str] = []

    async def main() -> None:
        leases = connect(server.url)

        async def plain(name: str) -> str:
            running.append(f"+{name}")
            await asyncio.sleep(0.01)
            running.append(f"-{name}")
            return name

        work = leases.exclusive("k", ttl=30)(plain)

        assert sorted(await asyncio.gather(*(work(name) for name in "abc"))) == ["a", "b", "c"]
        # A caller that is cancelled leaves neither its place in the queue nor a lease.
        blocker = leases.exclusive("k", ttl=30)(asyncio.Event().wait)
        holding = asyncio.create_task(blocker())
        while server.memory.holder_of("k") is None:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(work("d"))
        while len(running) == 6 and not server.memory._queue:
            await asyncio.sleep(0.001)
        for task in (waiting, holding):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await work("e") == "e"
        closed = leases.close()
        if closed is not None:
            await closed

    asyncio.run(asyncio.wait_for(main(), 30))
    assert [running[at][1] == running[at + 1][1] for at in range(0, len(running), 2)] == [True] * 4
    assert server.memory.holder_of("k") is None


def test_an_error_of_a_coroutine_comes_through_and_releases(world: World) -> None:
    @world.connect().exclusive("k")
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(work())
    assert world.server.holder_of("k") is None


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (generator, "a generator runs after the call"),
        (async_generator, "a generator runs after the call"),
        (functools.partial(generator), "a generator runs after the call"),
        (Callables(), "a generator runs after the call"),
        (Callables, "Decorate its methods"),
        (Callables.__dict__["static"], "below @staticmethod"),
        (property(lambda self: None), "cannot be called"),
    ],
)
def test_what_cannot_run_under_a_lease_is_refused_when_it_is_decorated(world: World, made: Any, said: str) -> None:
    core = world.connect()._core
    for leases in (leasehold_client.Leases(core), leasehold_client.aio.Leases(core)):
        with pytest.raises(LeaseError, match=said) as caught:
            leases.exclusive("k")(made)
        assert caught.value.code == "INVALID"
    assert world.server.commands == []


def test_the_asyncio_client_refuses_a_function_and_takes_what_is_awaited(world: World) -> None:
    leases = leasehold_client.aio.Leases(world.connect()._core)
    with pytest.raises(LeaseError, match="Write async def"):
        leases.exclusive("k")(function)  # type: ignore[arg-type]
    for awaited in (coroutine, functools.partial(coroutine), CalledLater()):
        leases.exclusive("k")(awaited)
    assert asyncio.run(world.connect().exclusive("k")(CalledLater())()) == "done"


def test_a_function_that_only_returns_a_coroutine_or_a_generator_is_refused_when_it_is_called(world: World) -> None:
    leases = world.connect()
    for made in (lambda: coroutine(), lambda: generator()):
        with pytest.raises(LeaseError, match="runs when the lease is over") as caught:
            leases.exclusive("k")(made)()
        assert caught.value.code == "INVALID" and world.server.holder_of("k") is None


# Inside another request


def test_a_request_inside_a_request_for_the_same_name_is_invalid_at_once(world: World) -> None:
    leases = world.connect()
    before = world.clock.read().monotonic
    with leases.request("k", ttl=20):
        begun: list[Callable[[], object]] = [lambda: leases.acquire("k", wait=5), leases.request("k", wait=5).__enter__]
        for begin in begun:
            with pytest.raises(LeaseError) as caught:
                begin()
            assert (caught.value.code, caught.value.reason, caught.value.facts) == ("INVALID", "waits-for-itself", {"resource": "k"})
        assert leases.try_acquire("k") is None
        with leases.request("other"), pytest.raises(LeaseError, match="INVALID"):
            leases.acquire(["free", "k"])
        assert leases.acquire("k", reuse=True).held
    assert world.clock.read().monotonic - before < 1
    with leases.acquire("k"), pytest.raises(LeaseError, match="INVALID"):
        leases.acquire("k")
    assert leases.acquire("k").held


def test_an_exclusive_function_that_calls_itself_is_invalid_at_once(world: World) -> None:
    leases = world.connect()

    @leases.exclusive("k")
    def work() -> None:
        work()

    with pytest.raises(LeaseError, match="INVALID"):
        work()
    assert world.server.holder_of("k") is None


def test_only_the_blocks_around_a_call_count(world: World) -> None:
    leases, others = world.connect("a"), world.connect("b")
    lease = leases.acquire("k")  # not a block
    with pytest.raises(LeaseError, match="TIMEOUT"):
        leases.acquire("k", wait=5)
    lease.release()
    with leases.request("k"), pytest.raises(LeaseError, match="TIMEOUT"):
        others.acquire("k", wait=5)
    with leases.request("k") as released:
        released.release()
        assert leases.acquire("k", wait=5).held

    def block() -> Generator[None, None, None]:
        with leases.request("g"):
            yield

    begun = block()
    next(begun)
    begun.close()
    assert "HOLDING" not in world.server.commands[-1]
    leases.acquire("g", wait=5).release()
    assert "HOLDING" not in [words for words in world.server.commands if words[0] == "LEASE.ACQUIRE"][-1]


def test_a_block_of_request_begins_once(world: World) -> None:
    leases = world.connect()
    block = leases.request("k", mode="shared")
    with block, pytest.raises(LeaseError, match="call request"):
        block.__enter__()
    assert world.server.holder_of("k") is None


def test_a_task_that_is_started_in_a_block_is_inside_it(world: World) -> None:
    leases = leasehold_client.aio.Leases(world.connect()._core)

    async def main() -> None:
        async with leases.request("k"):
            with pytest.raises(LeaseError, match="INVALID"):
                await leases.acquire("k", wait=5)
            with pytest.raises(LeaseError, match="INVALID"):
                await asyncio.create_task(leases.acquire("k", wait=5))
        assert await leases.try_acquire("k") is not None

    asyncio.run(main())


def test_a_name_that_is_given_twice_is_one_name(world: World) -> None:
    leases = world.connect()
    lease = leases.acquire(["x", "y", "x"], ttl=20)
    assert lease.resources == ("x", "y") and set(lease.tokens) == {"x", "y"}
    assert world.server.commands[-1][1:4] == ["x", "y", "TTL"]
    with pytest.raises(LeaseError, match="a resource is a text"):
        leases.acquire(["a", ["b"]])  # type: ignore[list-item]


@needs_server
def test_a_real_server_answers_the_same() -> None:
    server = Server()
    try:
        with leasehold_client.connect(server.url) as leases, leases.request(["k", "k", "l"]) as lease:
            assert set(lease.tokens) == {"k", "l"}
            with pytest.raises(LeaseError) as caught:
                leases.acquire("k")
            assert (caught.value.code, caught.value.reason, caught.value.facts["resource"]) == ("INVALID", "waits-for-itself", "k")
    finally:
        server.kill()
