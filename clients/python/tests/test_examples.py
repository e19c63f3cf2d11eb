"""The examples, against a real server."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .server_process import Server, needs_server

pytestmark = needs_server
EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


def start(server: Server, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LEASEHOLD_URL": server.url, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, cwd=EXAMPLES)


def run(server: Server, *words: str) -> str:
    process = start(server, sys.executable, *words)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}")


def test_the_nightly_job_runs_and_later_runs_have_greater_tokens(server: Server, tmp_path: pathlib.Path) -> None:
    report = tmp_path / "report.txt"
    tokens = []
    for _ in range(2):
        assert "wrote 5 rows" in run(server, "nightly.py", str(report))
        tokens.append(int(report.read_text().splitlines()[0]))
    assert tokens[0] < tokens[1]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_a_planner_in_python_finds_a_reviewer_in_typescript(server: Server) -> None:
    reviewer = start(server, "node", "agent.mjs")
    try:
        until(reviewer, "registered")
        output = run(server, "agents.py", "3")
        assert "added: critic/" in output and output.count("was reviewed by process") == 3
    finally:
        reviewer.terminate()
        reviewer.wait(60)


def test_a_training_script_gets_a_device_of_the_pool(server: Server) -> None:
    owner = start(server, sys.executable, "training.py", "--offer", "fake-0,fake-1")
    try:
        until(owner, "offered")
        output = run(server, "training.py", "--steps", "2")
        assert "CUDA_VISIBLE_DEVICES=" in output and output.count("checkpoint-") == 2
    finally:
        owner.terminate()
        owner.wait(60)
