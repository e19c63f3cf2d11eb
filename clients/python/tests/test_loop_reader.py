"""An event loop reads the answers of its coroutines itself, and nothing depends on it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import leasehold_client.aio
from leasehold_client._engine import Engine
from leasehold_client._loop_reader import LoopReader
from leasehold_client._runner import Runner

from .socket_server import SocketServer


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def runner_of(leases: leasehold_client.aio.Leases) -> Runner:
    owner = leases._core.owner
    assert isinstance(owner, Runner)
    return owner


def block_until(condition: Callable[[], object]) -> None:
    """Blocks the loop, as a long calculation does."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def copies(runner: Runner) -> list[LoopReader]:
    return [reader for reader in runner._loop_readers if reader.works]


def test_the_loop_reads_the_answers_of_its_coroutines(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []
    received = Engine.received

    def note(engine: Engine, data: bytes) -> None:
        readers.append(threading.get_ident())
        received(engine, data)

    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            await (await leases.acquire("warm")).release()
            monkeypatch.setattr(Engine, "received", note)
            for i in range(20):
                lease = await leases.acquire(f"k/{i}")
                await lease.put("entry", "value")
                await lease.release()

    run(main())
    assert readers.count(threading.get_ident()) > 40


def test_the_clients_thread_confirms_a_grant_while_the_loop_is_blocked(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url, holder="b") as b:
            await (await b.acquire("warm")).release()
            with leasehold_client.connect(server.url, holder="a") as a:
                first = a.acquire("k")
                waiting = asyncio.create_task(b.acquire("k"))
                while not a.show("k")["queue"]:
                    await asyncio.sleep(0)
                assert runner_of(b)._reader is not None
                first.release()
                # The grant comes, and is confirmed by a renewal, although the loop does nothing.
                block_until(lambda: b._core.engine.renewals.held)
                assert not waiting.done()
            lease = await waiting
            assert lease.held

    run(main())


def test_a_connection_that_breaks_leaves_no_copy_behind(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            runner = runner_of(leases)
            await (await leases.acquire("warm")).release()  # connected from here on
            lease = await leases.acquire("k")
            (old,) = copies(runner)
            server.cut()
            while old.works or leases.stats["connections"] < 2:
                await asyncio.sleep(0.01)
            await lease.put("entry", "value")
            await lease.release()
            await (await leases.acquire("k")).release()
            assert len(copies(runner)) == 1 and copies(runner) != [old]
        assert copies(runner) == []

    run(main())


def test_a_client_goes_from_loop_to_loop(server: SocketServer) -> None:
    leases = leasehold_client.aio.connect(server.url)
    runner = runner_of(leases)

    async def once() -> None:
        await (await leases.acquire("k")).release()

    for _ in range(3):
        run(once())
    # Loops that were closed have forgotten their readers.
    block_until(lambda: len(copies(runner)) <= 1)
    # The loop that reads is gone: closing does not wait for it.
    held: list[leasehold_client.aio.Lease] = []

    async def keep() -> None:
        held.append(await leases.acquire("kept"))

    run(keep())
    runner.close()
    assert server.memory.holder_of("kept") is None


def test_loops_on_two_threads_share_a_client(server: SocketServer) -> None:
    leases = leasehold_client.aio.connect(server.url)
    total = [0]

    async def work() -> None:
        for _ in range(20):
            async with leases.request("counter", wait=60):
                before = total[0]
                await asyncio.sleep(0)
                total[0] = before + 1

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    runner_of(leases).close()
    assert total == [60]


def test_a_loop_that_watches_no_files_leaves_reading_to_the_clients_thread(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def refuse(*_: object) -> None:
            raise NotImplementedError

        with monkeypatch.context() as patched:
            patched.setattr(loop, "add_reader", refuse)
            async with leasehold_client.aio.connect(server.url) as leases:
                for _ in range(3):
                    await (await leases.acquire("k")).release()
                assert copies(runner_of(leases)) == []

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_closes_its_copies(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            await (await leases.acquire("warm")).release()  # connected from here on
            lease = await leases.acquire("k")
            runner = runner_of(leases)
            (reader,) = copies(runner)
            child = os.fork()
            if child == 0:
                os._exit(0 if not reader.works and not lease.held else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert reader.works and lease.held
            await lease.release()

    run(main())


def test_an_answer_for_a_loop_that_was_closed_is_no_defect(server: SocketServer) -> None:
    leases = leasehold_client.aio.connect(server.url, holder="b")

    async def use() -> None:
        await (await leases.acquire("warm")).release()

    async def wait() -> None:
        await leases.acquire("k", wait=60)

    with leasehold_client.connect(server.url, holder="a") as a:
        first = a.acquire("k")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use())
        task = loop.create_task(wait())
        while not a.show("k")["queue"]:
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()  # with a task that waits
        # What comes for that task is read by the next loop of this thread.
        first.release()
        run(use())
        block_until(lambda: leases._core.engine.renewals.held)
    assert leases.stats["connections"] == 1 and not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    runner_of(leases).close()


def test_the_event_of_a_loss_may_first_be_asked_for_on_another_thread(server: SocketServer) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases:
            lease = await leases.acquire("k", ttl=1)
            event = await asyncio.to_thread(lambda: lease.lost)
            waiting = asyncio.create_task(event.wait())
            server.memory.revoke(lease.id)
            await asyncio.wait_for(waiting, 30)
            over = await leases.acquire("j")
            await over.release()
            await asyncio.wait_for(over.lost.wait(), 30)

    run(main())
