"""RESP 3: commands into bytes, answers and pushes out of bytes. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._errors import LeaseError

#: A server that sends more than this in one value is not ours, or is broken.
MAX_BYTES = 64 * 1024 * 1024
MAX_ITEMS = 2_000_000
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Push:
    """An unsolicited message: a grant of a queued lease, or events of a watch."""

    items: list[Any]


class ProtocolError(Exception):
    """The bytes are not RESP. The connection cannot go on."""


def command(*words: str | int | bytes) -> bytes:
    """One command as the server reads it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n" % len(data))
        parts.append(data)
        parts.append(b"\r\n")
    return b"".join(parts)


class _Incomplete(Exception):
    pass


class Decoder:
    """Feed it bytes as they come; iterate over the complete answers. An error answer is yielded as a ``LeaseError``."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        self._data += data
        if len(self._data) > MAX_BYTES:
            raise ProtocolError("the server sent too much in one answer")
        start = 0
        while start < len(self._data):
            self._at = start
            try:
                value = self._value(0)
            except _Incomplete:
                break
            start = self._at
            yield value
        del self._data[:start]

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            raise _Incomplete
        line = bytes(self._data[self._at : end])
        self._at = end + 2
        return line

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ProtocolError("the answer is nested too deep")
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b":" or kind == b"(":
            return self._int(rest)
        if kind == b"$":
            return self._bulk(rest)
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return _error(rest.decode("utf-8", "replace"))
        if kind == b"*" or kind == b"~":
            return self._items(rest, depth)
        if kind == b"%":
            count = self._count(rest)
            return {self._value(depth + 1): self._value(depth + 1) for _ in range(count)}
        if kind == b">":
            return Push(self._items(rest, depth) or [])
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b",":
            return float(rest)
        raise ProtocolError(f"unknown type {kind!r}")

    def _int(self, text: bytes) -> int:
        try:
            return int(text)
        except ValueError:
            raise ProtocolError(f"not a number: {text[:20]!r}") from None

    def _count(self, text: bytes) -> int:
        count = self._int(text)
        if not -1 <= count <= MAX_ITEMS:
            raise ProtocolError(f"too many items: {count}")
        return count

    def _bulk(self, text: bytes) -> str | None:
        length = self._int(text)
        if length < 0:
            return None
        if length > MAX_BYTES:
            raise ProtocolError(f"too long: {length}")
        end = self._at + length
        if len(self._data) < end + 2:
            raise _Incomplete
        value = bytes(self._data[self._at : end]).decode("utf-8", "replace")
        self._at = end + 2
        return value

    def _items(self, text: bytes, depth: int) -> list[Any] | None:
        count = self._count(text)
        if count < 0:
            return None
        return [self._value(depth + 1) for _ in range(count)]


def _error(text: str) -> LeaseError:
    """``CODE message``, and after a tab the facts as one JSON object."""
    head, _, tail = text.partition("\t")
    code, _, message = head.partition(" ")
    try:
        facts = json.loads(tail) if tail else {}
    except ValueError:
        facts = {}
    return LeaseError(code, message, facts if isinstance(facts, dict) else {})
