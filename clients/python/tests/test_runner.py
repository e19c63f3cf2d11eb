"""Threads, sockets, forks and the interpreter's exit. These tests use real time, in short waits."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import warnings

import pytest

import leasehold_client
from leasehold_client import LeaseError, _runner
from leasehold_client._engine import Engine
from leasehold_client._runner import Runner

from .bounds import EVENT_TIMEOUT
from .renewals import await_a_term
from .socket_server import SocketServer


def test_the_example_of_the_readme_works(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases, leases.request("jobs/nightly", ttl=30, wait=300) as lease:
        assert lease.token > 0
        lease.assert_held()
        assert leases.try_acquire("jobs/nightly") is None


def test_a_waiting_thread_is_granted(server: SocketServer) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        first = a.acquire("k")
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.append(b.acquire("k", wait=10).token))
        thread.start()
        while not a.show("k")["queue"]:
            time.sleep(0.01)
        first.release()
        thread.join(10)
        assert got and got[0] > first.token


def test_a_lease_is_renewed_while_its_thread_is_busy(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases, leases.acquire("k", ttl=3) as lease:
        await_a_term(leases, lease)
        assert lease.held


def test_a_loss_sets_the_event_and_calls_back(server: SocketServer) -> None:
    told: list[LeaseError] = []
    with leasehold_client.connect(server.url) as leases:
        lease = leases.acquire("k", ttl=0.5)
        lease.on_lost(told.append)
        server.silent = True
        assert lease.lost.wait(10)
        assert not lease.held
        server.silent = False
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
        assert told[0].code == "LOST"


def test_a_callback_that_blocks_does_not_stop_renewals(server: SocketServer) -> None:
    over = threading.Event()
    with leasehold_client.connect(server.url) as leases:
        kept = leases.acquire("kept", ttl=3)
        lost = leases.acquire("lost", ttl=3)
        lost.on_lost(lambda error: void(over.wait(60)))
        server.memory.revoke(lost.id)
        assert lost.lost.wait(10)
        await_a_term(leases, kept)
        assert kept.held
        over.set()


def void(value: object) -> None:
    return None


def test_a_callback_that_fails_is_a_warning(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lease = leases.acquire("k", ttl=0.6)
        lease.on_lost(lambda error: void(1 / 0))
        server.memory.revoke(lease.id)
        deadline = time.monotonic() + 10
        while not caught and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "ZeroDivisionError" in str(caught[0].message)


def test_a_connection_that_breaks_is_made_again(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases, leases.acquire("k", ttl=5) as lease:
        server.cut()
        assert leases.show("k")["grants"][0]["lease"] == lease.id
        assert lease.held and leases.stats["connections"] == 2


def test_an_unreachable_server_is_told_at_once_with_what_was_tried() -> None:
    began = time.monotonic()
    with leasehold_client.connect("leasehold://127.0.0.1:1,127.0.0.1:2") as leases, pytest.raises(LeaseError) as caught:
        leases.acquire("k")
    assert caught.value.code == "UNAVAILABLE" and time.monotonic() - began < 5
    assert "127.0.0.1:1" in caught.value.message and "127.0.0.1:2" in caught.value.message


def test_a_peer_that_speaks_http_is_told_as_such() -> None:
    import socket

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.close()

    threading.Thread(target=serve, daemon=True).start()
    with leasehold_client.connect(f"leasehold://127.0.0.1:{listener.getsockname()[1]}") as leases, pytest.raises(LeaseError) as caught:
        leases.acquire("k")
    listener.close()
    assert "does not speak as a server of ours" in caught.value.message


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_does_not_disturb_its_parent(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases, leases.acquire("k", ttl=5) as lease:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert not lease.held
                for call in (lease.assert_held, lease.release, lambda: leases.acquire("x")):
                    try:
                        call()
                        os._exit(2)
                    except LeaseError as error:
                        assert error.code == "INVALID" and "fork" in error.message
                leases.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.assert_held()
        assert leases.show("k")["grants"][0]["lease"] == lease.id
        assert leases.stats["connections"] == 1


EXIT = """
import leasehold_client, sys
leases = leasehold_client.connect(sys.argv[1])
lease = leases.acquire("k", ttl=60)
print("held", flush=True)
{rest}
"""


@pytest.mark.parametrize("rest", ["", "raise SystemExit(0)", "import threading; threading.Thread(target=lambda: None).start()"])
def test_the_interpreter_exits_and_gives_back_what_it_held(server: SocketServer, rest: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT.format(rest=rest), server.url], timeout=EVENT_TIMEOUT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("held\n", "", 0)
    assert server.memory.holder_of("k") is None


def test_the_interpreter_exits_although_the_server_is_silent(server: SocketServer) -> None:
    code = EXIT.format(rest="sys.stdin.readline()")
    process = subprocess.Popen([sys.executable, "-c", code, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "held\n"
    server.silent = True
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(15) == 0
    process.stdin.close()
    process.stdout.close()


def test_a_lease_to_which_no_reference_is_left_is_held_until_its_client_is_closed(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases:
        leases.acquire("k", ttl=60)
        gc.collect()
        leases.show("k")  # what a finalizer would have sent was answered before
        assert server.memory.holder_of("k") == leases.holder
    assert server.memory.holder_of("k") is None


def test_many_threads_share_one_client(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases:
        total = [0]

        def work() -> None:
            for _ in range(10):
                with leases.acquire("counter", wait=60):
                    before = total[0]
                    time.sleep(0)
                    total[0] = before + 1

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert total == [60]


def test_calls_are_answered_while_another_thread_waits_and_reads(server: SocketServer) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        held = a.acquire("k")
        b.acquire("warm").release()
        granted: list[int] = []
        thread = threading.Thread(target=lambda: granted.append(b.acquire("k", wait=30).token))
        thread.start()
        while not b.show("k")["queue"]:
            time.sleep(0.01)
        kept = b.acquire("kept", ttl=3)
        for i in range(20):
            b.acquire(f"other/{i}").release()
        await_a_term(b, kept)
        assert kept.held and not granted
        held.release()
        thread.join(30)
        assert granted and granted[0] > held.token


def test_a_caller_that_reads_and_stands_still_delays_no_renewal(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases:
        lease = leases.acquire("k", ttl=3)
        runner = leases._core.owner
        assert isinstance(runner, Runner)
        with runner._lock:
            runner._reader = -1  # a thread that never comes back
            runner._watch()
        await_a_term(leases, lease)
        assert lease.held
        with runner._lock:
            runner._reader = None
            runner._watch()


def test_posted_work_runs_before_a_later_call(server: SocketServer) -> None:
    with leasehold_client.connect(server.url) as leases:
        runner, order = leases._core.owner, []
        assert isinstance(runner, Runner)
        with runner._lock:  # the client's thread cannot run it meanwhile
            runner.post(lambda engine: order.append("posted"))
            runner.do(lambda engine: order.append("called"))
        assert order == ["posted", "called"]


def test_the_thread_of_the_caller_reads_its_answer(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = set()
    received = Engine.received

    def note(engine: Engine, data: bytes) -> None:
        readers.add(threading.get_ident())
        received(engine, data)

    with leasehold_client.connect(server.url) as leases:
        leases.acquire("warm").release()
        monkeypatch.setattr(Engine, "received", note)
        for i in range(20):
            leases.acquire(f"k/{i}").release()
        assert threading.get_ident() in readers
        readers.clear()
        monkeypatch.setattr(_runner, "CALLERS_READ", False)
        for i in range(20):
            leases.acquire(f"k/{i}").release()
        assert readers and threading.get_ident() not in readers


def test_a_defect_in_an_answer_is_a_warning_and_a_new_connection(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    received = Engine.received

    def fail_once(engine: Engine, data: bytes) -> None:
        monkeypatch.setattr(Engine, "received", received)
        raise KeyError("a defect")

    with leasehold_client.connect(server.url) as leases:
        leases.acquire("warm").release()
        monkeypatch.setattr(Engine, "received", fail_once)
        with pytest.warns(RuntimeWarning, match="a defect"), leases.acquire("k") as lease:
            assert lease.held and leases.stats["connections"] == 2


STOPPED = """
import leasehold_client, sys, time
with leasehold_client.connect(sys.argv[1]) as leases:
    lease = leases.acquire("k", ttl=1)
    print("held", flush=True)
    sys.stdin.readline()
    print(lease.held, flush=True)
    try:
        lease.assert_held()
    except leasehold_client.LeaseLost as error:
        print(error.cause, error.duration > 1, lease.lost.wait(120), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="there are no such signals here")
def test_a_process_that_was_stopped_learns_of_its_loss_when_it_goes_on(server: SocketServer) -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPED, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.stdin.write("\n")
    process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=EVENT_TIMEOUT)
    looked, told = out.splitlines()
    assert looked == "False" and told.split()[0] in ("stall", "unreachable") and told.split()[1:] == ["True", "True"]


LOCKED = """
import ctypes, leasehold_client, sys
with leasehold_client.connect(sys.argv[1]) as leases:
    lease = leases.acquire("k", ttl=1)
    ctypes.PyDLL(None).usleep(2_500_000)  # a call that does not let go of the interpreter lock
    print(lease.held, flush=True)
    try:
        lease.assert_held()
    except leasehold_client.LeaseLost as error:
        print(error.cause, error.duration > 1, lease.lost.wait(120), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="usleep is looked up in the C library of Linux")
def test_a_call_that_holds_the_interpreter_lock_learns_of_its_loss_afterwards(server: SocketServer) -> None:
    done = subprocess.run([sys.executable, "-c", LOCKED, server.url], timeout=EVENT_TIMEOUT, capture_output=True, text=True)
    looked, told = done.stdout.splitlines()
    assert looked == "False" and told.split()[0] in ("stall", "unreachable") and told.split()[1:] == ["True", "True"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate with")
def test_tls_with_an_authority_of_its_own(tmp_path: pathlib.Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=EVENT_TIMEOUT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = SocketServer(context)
    try:
        with leasehold_client.connect(f"{server.url}?ca={certificate}") as leases:
            held = [leases.acquire(f"k/{i}", ttl=3) for i in range(50)]
            await_a_term(leases, *held)
            assert all(lease.held for lease in held)
            for lease in held:
                lease.release()
        with leasehold_client.connect(server.url) as leases, pytest.raises(LeaseError) as caught:
            leases.acquire("k")
        assert caught.value.code == "UNAVAILABLE" and "certificate" in caught.value.message.lower()
        with leasehold_client.connect(server.url.replace("leaseholds", "leasehold")) as leases, pytest.raises(LeaseError) as caught:
            leases.acquire("k", wait=2)
        assert caught.value.code == "UNAVAILABLE"
    finally:
        server.close()
