"""Agents that find each other by capability: this one in Python, agent.mjs in TypeScript's library.

    leasehold serve --store memory:               # a server
    node agent.mjs &                              # a reviewer
    python agents.py                              # a planner that asks it

Each agent registers itself, and is listed only while it lives. The planner picks a reviewer, and the same one for the same document.
"""

from __future__ import annotations

import sys
import urllib.request

import leasehold_client


def main(reviews: int) -> None:
    with leasehold_client.connect() as leases:
        me = leases.registry.register("planner", capabilities=["plan"], metadata={"language": "Python"})
        with me:
            reviewers = leases.registry.discover(capability="review", max_stale="1m")
            for change in reviewers:  # those that are there, then every change
                print(f"{change.type}: {change.instance.service}/{change.instance.instance} at {change.instance.address}")
                if change.type == "added":
                    break
            for i in range(reviews):
                reviewer = reviewers.pick(key=f"document-{i}")
                assert reviewer is not None
                with urllib.request.urlopen(f"{reviewer.address}/review?document={i}", timeout=10) as answer:
                    print(answer.read().decode())
                me.update(load=i)


main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
