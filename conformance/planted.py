"""Plants known mistakes in copies of the Python client, and expects the named scenario to find each.

Usage: python planted.py COMMAND …, where COMMAND runs the conductor and takes ``--only TEXT`` and the driver's command.
Ends with 1 when a mistake goes unnoticed.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Only ends what hangs: on a busy machine a scenario may take minutes.
HANGING = 1_200
HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "clients" / "python" / "src"

#: The mistake, the file, the text, what it is replaced by, and the scenario that must fail.
MISTAKES = [
    ("a term is counted from the answer", "_held.py", "self.deadline = sent.plus(", "self.deadline = self._clock.read().plus(", "03"),
    ("no margin is given up", "_held.py", "return max(2 * clock_error * term, min(0.05, term / 10))", "return 0.0", "02"),
    ("a margin that is too large", "_held.py", "return max(2 * clock_error * term, min(0.05, term / 10))", "return term / 4", "02"),
    (
        "a waited grant is trusted at once",
        "_acquire.py",
        'self._engine.channel.send(("LEASE.RENEW", lease), done, timeout=max(1.0, self._asked.ttl))',
        'done([round(self._asked.ttl * 1000)], None, self._engine.channel.send(("PING",), lambda v, e, r: None, "read"))',
        "06",
    ),
    (
        "an answer brings back what was over",
        "_renewal.py",
        "if held.over:\n            # A caller was told that it is over: no answer brings it back.\n"
        "            self.expire(held)\n            return False",
        "held.over = False",
        "04",
    ),
    ("the timer of the deadline is never set", "_renewal.py", "if held not in self._deadlines:", "if False:", "33"),
    (
        "a request is asked again under a new operation",
        "_channel.py",
        "                self._queue.appendleft(request)",
        "                words = (*request.words[:-1], str(request.words[-1]) + 'x') if 'OP' in request.words else request.words\n"
        "                request.words = words\n                self._queue.appendleft(request)",
        "07",
    ),
    ("a request carries no operation id", "_request.py", 'return (*words, "OP", op)', "return tuple(words)", "40"),
    (
        "what was on a connection that broke is forgotten",
        "_channel.py",
        "                self._queue.appendleft(request)",
        "                pass",
        "08",
    ),
    (
        "only the monotonic clock is read",
        "_clock.py",
        " or now.boottime >= self.boottime\n\n    def until(self, now: Reading) -> float:\n"
        "        return min(self.monotonic - now.monotonic, self.boottime - now.boottime)",
        "\n\n    def until(self, now: Reading) -> float:\n        return self.monotonic - now.monotonic",
        "11",
    ),
    ("jumps of the wall clock are not noticed", "_held.py", "> WALL_JUMP", "> 1e12", "12"),
    ("silence is borne for ever", "_channel.py", "if now >= self._quiet_since + limit:", "if False:", "15"),
    ("a waiter's connection is never tried", "_channel.py", "and self.listening() else None", "and False else None", "16"),
    (
        "a waiter does not queue again",
        "_acquire.py",
        "        self._engine.timers.at(self._engine.clock.read().monotonic + REQUEUE, self.begin)",
        "        pass",
        "17",
    ),
    ("a lost grant is not looked for", "_acquire.py", 'value.get("status") == "live"', "False", "18"),
    ("a log that went back is not noticed", "_channel.py", 'self.on_ready(value.get("continues", 1) != 0)', "self.on_ready(True)", "20"),
    ("the witness that comes with answers is not kept", "_channel.py", "self._witness = str(value.items[1])", "pass", "37"),
    (
        "a cancelled wait leaves its grant behind",
        "_acquire.py",
        "        if lease is not None:\n            self._engine.give_back(lease, self._asked.ttl)\n\n    def close",
        "\n    def close",
        "21",
    ),
    (
        "a wait that is over keeps its place",
        "_acquire.py",
        "        if lease is not None:\n            self._engine.give_back(lease, self._asked.ttl)\n\n    def close",
        "\n    def close",
        "22",
    ),
    (
        "a release goes on holding until it is answered",
        "_renewal.py",
        "        held.reason = reason\n",
        "        held.reason = reason if reason.code == 'LOST' else None\n",
        "24",
    ),
    (
        "a giver goes on holding",
        "_core.py",
        'self.owner.do(lambda engine: engine.renewals.end(held, f"transferred to {to}"))',
        "pass",
        "34",
    ),
    (
        "a lease that was passed on to a name is taken without a claim",
        "_adopt.py",
        'engine.channel.send(("LEASE.CLAIM", lease, *incarnation, "OP", engine.operation()), self._claim_answered).late = self._late',
        "self._confirm()",
        "38",
    ),
    (
        "a lease that was passed on is trusted without a renewal",
        "_adopt.py",
        'self._engine.channel.send(("LEASE.RENEW", self._lease), self._renewed, timeout=max(1.0, self._ttl))',
        'self._renewed([round(self._ttl * 1000)], None, self._engine.channel.send(("PING",), lambda v, e, r: None, "read"))',
        "39",
    ),
    (
        "children outlive their parent",
        "_renewal.py",
        "        for child in list(held.children or ()):\n            self.lose_with_parent(child)\n        self._end(",
        "        self._end(",
        "29",
    ),
    (
        "closing gives nothing back",
        "_engine.py",
        "return last + [self.release(held) for held in list(self.renewals.held.values())]",
        "return last",
        "30",
    ),
]


def main() -> int:
    command = sys.argv[1:]
    unnoticed = 0
    only = os.environ.get("ONLY", "")
    chosen = [each for each in MISTAKES if only in each[0]]
    for mistake, file, text, replacement, scenario in chosen:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(SOURCE / "leasehold_client", f"{folder}/leasehold_client")
            path = pathlib.Path(folder, "leasehold_client", file)
            source = path.read_text()
            if source.count(text) < 1:
                print(f"STALE    {mistake}: {file} has no such text")
                unnoticed += 1
                continue
            path.write_text(source.replace(text, replacement, 1))
            driver = [sys.executable, str(HERE / "drivers" / "python.py")]
            environment = {**os.environ, "LEASEHOLD_CLIENT": folder, "SCENARIOS": str(HERE / "scenarios")}
            done = subprocess.run([*command, "--only", scenario, *driver], env=environment, capture_output=True, text=True, timeout=HANGING)
        found = done.returncode != 0
        print(f"{'found   ' if found else 'UNNOTICED'} {mistake} ({scenario})", flush=True)
        unnoticed += not found
    print(f"{len(chosen) - unnoticed} passed, {unnoticed} failed")
    return 1 if unnoticed else 0


sys.exit(main())
