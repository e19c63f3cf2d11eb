"""RESP 3: commands into bytes, answers and pushes out of bytes. No I/O.

The decoder keeps its place inside an incomplete value. An answer of a megabyte that comes in a thousand pieces is scanned once, not a
thousand times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ._errors import LeaseError

#: A server that sends more than this in one value is not ours, or is broken.
MAX_BYTES = 64 * 1024 * 1024
MAX_LINE = 64 * 1024
MAX_ITEMS = 2_000_000
MAX_DEPTH = 16
_MAX_DIGITS = 20


class Push(NamedTuple):
    """An unsolicited message: a grant of a queued lease, or events of a watch."""

    items: list[Any]


class ProtocolError(Exception):
    """The bytes are not RESP. The connection cannot go on."""


def command(words: Iterable[str | int | bytes]) -> bytes:
    """One command as the server reads it."""
    parts = []
    count = 0
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
        count += 1
    return b"*%d\r\n" % count + b"".join(parts)


class _Open:
    """A list, map or push whose items are still coming."""

    __slots__ = ("items", "kind", "left")

    def __init__(self, kind: int, left: int) -> None:
        self.kind = kind
        self.left = left
        self.items: list[Any] = []

    def value(self) -> Any:
        if self.kind == _MAP:
            pairs = iter(self.items)
            try:
                return dict(zip(pairs, pairs, strict=True))
            except TypeError:
                raise ProtocolError("a map has a key that is no text") from None
        return Push(self.items) if self.kind == _PUSH else self.items


_ARRAY, _SET, _PUSH, _MAP = b"*"[0], b"~"[0], b">"[0], b"%"[0]
_BULK, _INT, _BIG, _SIMPLE, _ERROR = b"$"[0], b":"[0], b"("[0], b"+"[0], b"-"[0]
_NULL, _BOOL, _DOUBLE = b"_"[0], b"#"[0], b","[0]
_MISSING = object()


class Decoder:
    """Feed it bytes as they come; iterate over the complete answers. An error answer is yielded as a ``LeaseError``."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        self._searched = 0
        self._bulk = -1
        self._stack: list[_Open] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        self._data += data
        while True:
            value = self._next()
            if value is _MISSING:
                break
            self._size = 0
            yield value
        del self._data[: self._at]
        self._searched = max(0, self._searched - self._at)
        self._at = 0

    def _next(self) -> Any:
        """The next complete top-level value."""
        while True:
            value = self._scalar()
            if value is _MISSING:
                return _MISSING
            if isinstance(value, _Open) and value.left > 0:
                self._stack.append(value)
                if len(self._stack) > MAX_DEPTH:
                    raise ProtocolError("the answer is nested too deep")
                continue
            if isinstance(value, _Open):
                value = value.value()
            while self._stack:
                top = self._stack[-1]
                top.items.append(value)
                top.left -= 1
                if top.left > 0:
                    break
                self._stack.pop()
                value = top.value()
            else:
                return value

    def _scalar(self) -> Any:
        """One value without the items in it; an ``_Open`` for what has items."""
        if self._bulk >= 0:
            return self._text()
        line = self._line()
        if line is None:
            return _MISSING
        if not line:
            raise ProtocolError("an empty line")
        kind, rest = line[0], line[1:]
        if kind in (_INT, _BIG):
            return _whole(rest)
        if kind == _BULK:
            length = _whole(rest)
            if length < 0:
                return None
            self._grow(length)
            self._bulk = length
            return self._text()
        if kind == _SIMPLE:
            return rest.decode("utf-8", "replace")
        if kind in (_ARRAY, _SET, _PUSH, _MAP):
            count = _whole(rest)
            if count < 0:
                return None
            if count > MAX_ITEMS:
                raise ProtocolError(f"too many items: {count}")
            return _Open(kind, count * 2 if kind == _MAP else count)
        if kind == _ERROR:
            return _error(rest.decode("utf-8", "replace"))
        if kind == _NULL:
            return None
        if kind == _BOOL:
            return rest == b"t"
        if kind == _DOUBLE:
            try:
                return float(rest)
            except ValueError:
                raise ProtocolError(f"not a number: {rest[:20]!r}") from None
        raise ProtocolError(f"unknown type {line[:1]!r}")

    def _line(self) -> bytes | None:
        end = self._data.find(b"\r\n", max(self._at, self._searched))
        if end < 0:
            # The last byte may be half of the line's end.
            self._searched = max(self._at, len(self._data) - 1)
            if len(self._data) - self._at > MAX_LINE:
                raise ProtocolError("a line is too long")
            return None
        line = bytes(self._data[self._at : end])
        self._grow(end - self._at)
        self._at = end + 2
        return line

    def _text(self) -> Any:
        end = self._at + self._bulk
        if len(self._data) < end + 2:
            return _MISSING
        if self._data[end : end + 2] != b"\r\n":
            raise ProtocolError("a text is not as long as was said")
        value = bytes(self._data[self._at : end]).decode("utf-8", "replace")
        self._at = end + 2
        self._bulk = -1
        return value

    def _grow(self, count: int) -> None:
        self._size += count
        if self._size > MAX_BYTES:
            raise ProtocolError("the server sent too much in one answer")


def _whole(text: bytes) -> int:
    # int() takes blanks and underscores, and time in the square of the length.
    if len(text) <= _MAX_DIGITS and text.removeprefix(b"-").isdigit():
        return int(text)
    raise ProtocolError(f"not a number: {text[:20]!r}")


def _error(text: str) -> LeaseError:
    """``CODE message``, and after a tab the facts as one JSON object."""
    head, _, tail = text.partition("\t")
    code, _, message = head.partition(" ")
    try:
        facts = json.loads(tail) if tail else {}
    except (ValueError, RecursionError):
        facts = {}
    return LeaseError(code, message, facts if isinstance(facts, dict) else {})
