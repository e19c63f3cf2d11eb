"""A nightly job that runs once, wherever it is started, and whose late writes are refused.

    leasehold serve --store file:leases.db        # a server
    python nightly.py                             # on as many machines as you like

The report is a file with the token of its last writer in the first line, checked and written under one lock. With Postgres or Redis use the
guards of leasehold_client.fence, which do this in the transaction or script that writes.
"""

from __future__ import annotations

import fcntl
import pathlib
import sys
import time

import leasehold_client

REPORT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "report.txt")


def rows() -> list[str]:
    """The work, in small steps."""
    return [f"row {i}" for i in range(5)]


def write(lines: list[str], token: int) -> None:
    """Refuses a writer whose token is older than that of the last one."""
    with REPORT.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        first = file.readline().strip()
        if first and int(first) > token:
            raise leasehold_client.LeaseError("STALE", f"{REPORT} was written with the newer token {first}")
        file.seek(0)
        file.truncate()
        file.write("\n".join([str(token), *lines]) + "\n")


def main() -> None:
    with leasehold_client.connect() as leases:
        lease = leases.try_acquire("jobs/nightly", ttl=30)
        if lease is None:
            print("the job runs elsewhere")
            return
        with lease:
            done = []
            for row in rows():
                lease.assert_held()  # before each step that must not run twice
                time.sleep(0.05)
                done.append(row)
            write(done, lease.token)
            print(f"wrote {len(done)} rows with token {lease.token}")


main()
