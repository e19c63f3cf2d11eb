"""RESP 3: commands into bytes, answers and pushes out of bytes. No I/O.

The decoder keeps its place inside an incomplete value. An answer of a megabyte that comes in a thousand pieces is scanned once, not a
thousand times.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def command(words: Iterable[str | int]) -> bytes:
    """One command as the server reads it."""
    parts = [""]
    for word in words:
        text = word if isinstance(word, str) else str(word)
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        parts.append(f"${size}\r\n{text}\r\n")
    parts[0] = f"*{len(parts) - 1}\r\n"
    return "".join(parts).encode("utf-8", "surrogatepass")


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
_CR, _LF = b"\r\n"
_WITH_ITEMS = frozenset((_ARRAY, _SET, _PUSH, _MAP))


class Decoder:
    """Feed it bytes as they come; it returns the complete answers. An error answer is a ``LeaseError`` among them.

    One long function, since every call takes as long as reading a short value.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._bulk = -1
        self._stack: list[_Open] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Any]:
        values: list[Any] = []
        buffer, stack, bulk, size = self._data, self._stack, self._bulk, self._size
        buffer += data
        length, at, searched = len(buffer), 0, self._searched
        while True:
            # One value without the items in it.
            if bulk < 0:
                end = buffer.find(b"\r\n", searched)
                if end < 0:
                    if length - at > MAX_LINE:
                        raise ProtocolError("a line is too long")
                    # The last byte may be half of the line's end.
                    searched = max(at, length - 1)
                    break
                if end == at:
                    raise ProtocolError("an empty line")
                kind, rest = buffer[at], buffer[at + 1 : end]
                size += end - at
                at = searched = end + 2
                value: Any
                if kind == _BULK:
                    bulk = int(rest) if len(rest) < 8 and rest.isdigit() else _whole(rest)
                    size += max(bulk, 0)
                    value = None
                elif kind in (_INT, _BIG):
                    value = _whole(rest)
                elif kind in _WITH_ITEMS:
                    count = _whole(rest)
                    if count > MAX_ITEMS:
                        raise ProtocolError(f"too many items: {count}")
                    if count > 0:
                        stack.append(_Open(kind, count * 2 if kind == _MAP else count))
                        if len(stack) > MAX_DEPTH:
                            raise ProtocolError("the answer is nested too deep")
                        continue
                    value = None if count < 0 else _Open(kind, 0).value()
                else:
                    value = _other(kind, rest)
                if size > MAX_BYTES:
                    raise ProtocolError("the server sent too much in one answer")
            if bulk >= 0:
                end = at + bulk
                if length < end + 2:
                    break
                if buffer[end] != _CR or buffer[end + 1] != _LF:
                    raise ProtocolError("a text is not as long as was said")
                value = buffer[at:end].decode("utf-8", "replace")
                at = searched = end + 2
                bulk = -1
            # Its place among the items that are still coming.
            while stack:
                top = stack[-1]
                top.items.append(value)
                top.left -= 1
                if top.left > 0:
                    break
                stack.pop()
                value = top.value()
            else:
                values.append(value)
                size = 0
        del buffer[:at]
        self._searched, self._bulk, self._size = searched - at, bulk, size
        return values


def _other(kind: int, rest: bytearray) -> Any:
    if kind == _SIMPLE:
        return rest.decode("utf-8", "replace")
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
            raise ProtocolError(f"not a number: {bytes(rest[:20])!r}") from None
    raise ProtocolError(f"unknown type {bytes([kind])!r}")


def _whole(text: bytearray) -> int:
    # int() takes blanks and underscores, and time in the square of the length.
    if len(text) <= _MAX_DIGITS and (text.isdigit() or text.removeprefix(b"-").isdigit()):
        return int(text)
    raise ProtocolError(f"not a number: {bytes(text[:20])!r}")


def _error(text: str) -> LeaseError:
    """``CODE message``, and after a tab the facts as one JSON object."""
    head, _, tail = text.partition("\t")
    code, _, message = head.partition(" ")
    if not tail:
        return LeaseError(code, message)
    import json  # only where it is used

    try:
        facts = json.loads(tail)
    except (ValueError, RecursionError):
        facts = {}
    return LeaseError(code, message, facts if isinstance(facts, dict) else {})
