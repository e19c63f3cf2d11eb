"""RESP 3: commands into bytes, answers and pushes out of bytes. No I/O.

The decoder keeps its place inside an incomplete value. An answer of a megabyte that comes in a thousand pieces is scanned once, not a
thousand times.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ._errors import LeaseError

#: A server that sends more than this in one value is not ours, or is broken.
MAX_BYTES = 64 * 1024 * 1024
MAX_LINE = 64 * 1024
MAX_ITEMS = 2_000_000
MAX_DEPTH = 16
_MAX_DIGITS = 20
#: Longer pieces are read by the decoder, which keeps its place.
_SHORT = 4096


class Push(NamedTuple):
    """An unsolicited message: a grant of a queued lease, or events of a watch."""

    items: list[Any]


class ProtocolError(Exception):
    """The bytes are not RESP. The connection cannot go on."""


def command(words: Collection[str | int]) -> bytes:
    """One command as the server reads it."""
    texts = [f"${len(text)}\r\n{text}\r\n" for text in map(str, words)]
    whole = f"*{len(texts)}\r\n{''.join(texts)}"
    if whole.isascii():
        return whole.encode()
    # A size counts bytes, and these are more than the letters.
    parts = [text.encode("utf-8", "surrogatepass") for text in map(str, words)]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


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

    One long function, since every call takes as long as reading a short value. Most answers never get there: see ``_short``.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._bulk = -1
        self._stack: list[_Open] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Any]:
        if len(data) <= _SHORT and not self._data and not self._stack:
            short = _short(data)
            if short is not None:
                return short
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


def _short(data: bytes) -> list[Any] | None:
    """The answers in a piece that holds whole ones, without nesting: nearly all are, and splitting is the fastest way to read them.

    None: it has something else in it, or is not complete.
    """
    lines = data.split(b"\r\n")
    if lines.pop():
        return None
    values: list[Any] = []
    items: list[Any] = values
    left, outer = 0, b""
    following = iter(lines)
    for line in following:
        kind, rest = line[:1], line[1:]
        value: Any
        if kind == b"$":
            text = next(following, None)
            # A text with line ends in it was split into several lines.
            if text is None or not rest.isdigit() or len(rest) > 4 or len(text) != int(rest):
                return None
            value = text.decode("utf-8", "replace")
        elif kind == b":" and rest.isdigit() and len(rest) <= _MAX_DIGITS:
            value = int(rest)
        elif kind == b"+":
            value = rest.decode("utf-8", "replace")
        elif kind in (b"%", b">", b"*") and left == 0 and rest.isdigit() and len(rest) <= 3 and rest != b"0":
            left = int(rest) * 2 if kind == b"%" else int(rest)
            items, outer = [], kind
            continue
        else:
            return None
        items.append(value)
        if left > 0:
            left -= 1
            if left == 0:
                whole = dict(zip(items[::2], items[1::2], strict=True)) if outer == b"%" else items
                values.append(Push(items) if outer == b">" else whole)
                items = values
    return values if left == 0 else None


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
    """``CODE message``, and after a tab the reason and the facts as one JSON object."""
    head, _, tail = text.partition("\t")
    code, _, message = head.partition(" ")
    if not tail:
        return LeaseError(code, message)
    import json  # only where it is used

    from ._received import received_error

    try:
        rest = json.loads(tail)
    except (ValueError, RecursionError):
        rest = None
    return received_error(code, message, rest)
