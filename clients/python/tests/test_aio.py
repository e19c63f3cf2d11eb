"""The same for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import leasehold_client.aio
from leasehold_client import LeaseError

from .renewals import await_a_term
from .socket_server import SocketServer


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_the_example_works(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases, leases.request("jobs/nightly", ttl=30, wait=300) as lease:
            lease.assert_held()
            assert await leases.try_acquire("jobs/nightly") is None

    run(main())


def test_a_cancelled_wait_leaves_nothing_behind(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as a, leasehold_client.aio.connect(server.url, holder="b") as b:
            first = await a.acquire("k")
            task = asyncio.create_task(b.acquire("k"))
            while not (await a.show("k"))["queue"]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while (await a.show("k"))["queue"]:
                await asyncio.sleep(0.01)
            await first.release()
            assert await a.try_acquire("k") is not None

    run(main())


def test_a_blocked_loop_keeps_its_lease_and_a_loss_wakes_it(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            lease = await leases.acquire("k", ttl=3)
            await_a_term(leases, lease)
            assert lease.held
            told: list[LeaseError] = []
            lease.on_lost(told.append)
            server.memory.revoke(lease.id)
            await asyncio.wait_for(lease.lost.wait(), 10)
            while not told:
                await asyncio.sleep(0.01)
            assert told[0].facts["cause"] == "revoked"

    run(main())


def test_exclusive_runs_one_at_a_time(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            inside = 0

            @leases.exclusive("k")
            async def work() -> int:
                nonlocal inside
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1
                return 7

            assert await asyncio.gather(*(work() for _ in range(5))) == [7] * 5

    run(main())


def test_terms_of_office_follow_one_another(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as a, leasehold_client.aio.connect(server.url, holder="b") as b:
            tokens: list[int] = []

            async def candidate(leases: leasehold_client.aio.Leases) -> None:
                election = leases.election("office")
                async for term in election.terms():
                    tokens.append(term.token)
                    assert (await election.leader() or ("",))[0] == leases.holder
                    election.stop()

            await asyncio.gather(candidate(a), candidate(b))
            assert len(tokens) == 2 and tokens[0] < tokens[1]

    run(main())


def test_a_session_takes_its_leases_with_it(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            async with await leases.session() as session:
                lease = await session.acquire("documents/42")
                await session.put("presence/ann", "here")
                assert [entry["key"] for entry in await leases.entries("presence")] == ["presence/ann"]
            await asyncio.wait_for(lease.lost.wait(), 10)
            assert server.memory.holder_of("documents/42") is None

    run(main())


def test_instances_are_found_while_they_live(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as a, leasehold_client.aio.connect(server.url, holder="b") as b:
            found = b.registry.discover("planner")
            async with await a.registry.register("planner", address="http://10.0.0.7:8080") as me:
                changes = found.changes()
                first = await changes.__anext__()
                assert (first.type, first.instance.address) == ("added", "http://10.0.0.7:8080")
                await me.update(status="warning", load=3)
                assert (await changes.__anext__()).instance.status == "warning"
            assert (await changes.__anext__()).type == "removed"
            await changes.aclose()  # type: ignore[attr-defined]
            assert await found.pick() is None

    run(main())


def test_members_of_a_pool_are_taken_and_set_the_devices(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    async def main() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as leases:
            pool = leases.pool("gpu")
            offers = [await pool.offer(f"gpu-{i}") for i in range(2)]
            async with await pool.take(2) as gpus:
                assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(gpus.devices)
                assert await pool.try_take() is None
            assert "CUDA_VISIBLE_DEVICES" not in os.environ
            for offer in offers:
                await offer.release()

    run(main())
