"""Claims that cover: a name with all names below it."""

from __future__ import annotations

import asyncio

import pytest

import leasehold_client.aio
from leasehold_client import Invalid, Timeout
from leasehold_client.testing import World

from .server_process import Server, needs_server


def test_a_covering_claim_and_names_below_it_exclude_each_other_in_both_orders(world: World) -> None:
    one, two = world.connect("one"), world.connect("two")
    with one.request("lib", covers=True):
        for name in ("lib", "lib/c.py", "lib/x/y.py"):
            assert two.try_acquire(name) is None
        assert two.try_acquire("libs/c.py") is not None
    with one.request("lib/c.py"):
        assert two.try_acquire("lib", covers=True) is None
        assert two.try_acquire("lib/d.py") is not None


def test_the_claims_around_are_no_obstacle(world: World) -> None:
    one, two = world.connect("one"), world.connect("two")
    with one.request("lib", covers=True), one.request("lib/c.py") as below:
        assert below.held
    with one.request("lib/c.py"), one.request("lib", covers=True) as above:
        assert above.held
        assert two.try_acquire("lib/d.py") is None


@needs_server
def test_a_real_server_covers_the_names_below(server: Server) -> None:
    async def play() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as a, leasehold_client.aio.connect(server.url, holder="b") as b:
            async with a.request("python/lib", covers=True):
                assert await b.try_acquire("python/lib/c.py") is None
                async with a.request("python/lib/c.py") as below:
                    assert below.held
            with pytest.raises(Invalid):
                await a.acquire("python/lib", covers=True, units=2)
            async with a.request("python/lib/c.py"):
                with pytest.raises(Timeout):
                    await b.acquire("python/lib", covers=True, wait=0.05)

    asyncio.run(play())
