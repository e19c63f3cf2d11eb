"""Signal handlers that raise, in the middle of calls on the main thread."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType

import pytest

import leasehold_client
from leasehold_client._signals import SignalsHeldBack

from .socket_server import SocketServer

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such signals here")


class Interrupt(Exception):
    """What a handler raises, like a timeout."""


@pytest.fixture
def raising() -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        # Before the first step of such a method no code of it can act: Python leaves the block without calling it (docs/python.md).
        # The next signal may come before this handler has returned: what matters is where the first one came.
        while frame is not None and frame.f_code is handle.__code__:
            frame = frame.f_back
        if frame is None or frame.f_code.co_name not in ("__enter__", "__exit__") or frame.f_lasti > 4:
            raise Interrupt
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_handler_is_held_back_until_the_step_is_done(raising: None) -> None:
    steps = []
    with pytest.raises(Interrupt), SignalsHeldBack():
        steps.append("begun")
        os.kill(os.getpid(), signal.SIGALRM)
        steps.append("done")
    assert steps == ["begun", "done"]
    with pytest.raises(Interrupt):
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(10)


def test_other_threads_leave_the_handlers_alone() -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def look() -> None:
        with SignalsHeldBack():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


# A signal that comes during a finalizer is lost: Python cannot raise there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", ["request", "acquire"])
def test_interrupts_at_any_moment_lose_no_answer_and_leave_no_lease_behind(raising: None, form: str) -> None:
    dice = random.Random(5)
    server = SocketServer()
    interrupted: dict[int, str] = {}
    try:
        with leasehold_client.connect(server.url) as leases:
            leases.acquire("warm").release()
            for i in range(250):
                try:
                    signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00005, 0.004))  # once
                    with getattr(leases, form)(f"k/{i}", wait=30):
                        pass
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupt:
                    interrupted[i] = traceback.format_exc()
            # The next answers belong to the next requests, and what was interrupted is given back.
            for i in range(250):
                assert leases.show(f"k/{i}")["resource"] == f"k/{i}"
            deadline = time.monotonic() + 20
            while leases.stats["leases"] or any(server.memory.holder_of(f"k/{i}") for i in range(250)):
                left = [i for i in range(250) if server.memory.holder_of(f"k/{i}")]
                assert time.monotonic() < deadline, (left, [interrupted.get(i) for i in left], leases.stats)
                time.sleep(0.01)
            assert leases.stats["connections"] == 1
        assert len(interrupted) > 10
    finally:
        server.close()


def test_an_answer_that_is_read_in_a_signal_handler_ends_the_call_that_was_interrupted() -> None:
    server = SocketServer()
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        held = a.acquire("k")

        def handle(number: int, frame: FrameType | None) -> None:
            held.release()
            # Until the grant has come and was confirmed: all of that is read here.
            while not b.stats["leases"]:
                b.show("k")

        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with b.acquire("k", wait=60) as lease:
                # Without being woken, the call would end when the client tries its connection.
                assert lease.held and ["PING"] not in server.memory.commands
        finally:
            signal.signal(signal.SIGALRM, before)
    server.close()


def test_a_call_in_a_signal_handler_is_answered_during_another_call() -> None:
    server = SocketServer()
    shown: list[str] = []
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        held = a.acquire("k")

        def handle(number: int, frame: FrameType | None) -> None:
            shown.append(b.show("k")["grants"][0]["holder"])
            held.release()

        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            b.acquire("k", wait=30).release()
        finally:
            signal.signal(signal.SIGALRM, before)
    server.close()
    assert shown == ["a"]
