"""A lease as the stand-in for a server keeps it, and how its commands are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._connection import Connection

FIRST_TERM = 30.0
_FLAGS = {"QUEUE", "REUSE", "SHARED", "RECALL", "COVERS", "STEAL", "FORCE", "STOPPED"}
_PAIRS = {"LABEL", "ENTRY", "UNITSOF"}


class Lease:
    """Granted, waiting, suspect or frozen."""

    def __init__(self, number: int, holder: str, ttl: float, options: dict[str, Any], names: list[str]) -> None:
        self.id = number
        self.holder = holder
        self.ttl = ttl
        self.term = min(ttl, FIRST_TERM)
        self.names = names
        self.options = options
        self.status = "waiting"
        self.grants: dict[str, int] = {}
        self.entries: dict[str, str] = {}
        #: Those that it gets when it is granted.
        self.asked_entries: dict[str, str] = {}
        self.ends = 0.0
        self.recalled = False
        #: Passed on to a name: the first process of that name that claims it has it.
        self.open = False
        self.connection: Connection | None = None

    def units(self, name: str) -> int:
        return int(self.options.get(f"UNITSOF {name}", self.options.get("UNITS", 1)))


def covers(prefix: str, name: str) -> bool:
    """Whether a name is under a prefix, by whole segments."""
    return prefix == "" or name == prefix or name.startswith(prefix + "/")


def options_of(words: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options and entries of an acquire, from the words after its ttl."""
    options: dict[str, Any] = {}
    entries: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word in _FLAGS:
            options[word] = True
            at += 1
        elif word in _PAIRS:
            if word == "ENTRY":
                entries[words[at + 1]] = words[at + 2]
            else:
                options[f"{word} {words[at + 1]}"] = words[at + 2]
            at += 3
        elif word == "HOLDING":
            at += 1
            while at < len(words) and words[at].isdigit():
                options.setdefault(word, []).append(int(words[at]))
                at += 1
        else:
            options[word] = words[at + 1]
            at += 2
    return options, entries
