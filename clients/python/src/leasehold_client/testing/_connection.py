"""The server's end of a connection in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .._errors import LeaseError
from .._resp import ProtocolError, command

if TYPE_CHECKING:
    from ._server import MemoryServer


class Connection:
    """One connection to the stand-in: commands in, answers and pushes out."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._data = bytearray()
        self._at = 0
        self.out = bytearray()
        self.open = True
        self.watches: set[str] = set()

    def received(self, data: bytes) -> None:
        self._data += data
        while (words := self._command()) is not None:
            self._server.commands.append(words)
            try:
                self.out += encode(self._server.run(self, words))
            except LeaseError as error:
                rest = {**error.facts, "reason": error.reason} if error.reason else error.facts
                tail = f"\t{json.dumps(rest)}" if rest else ""
                self.out += f"-{error.code} {error.message}{tail}\r\n".encode()
        del self._data[: self._at]
        self._at = 0

    def push(self, *items: Any) -> None:
        self.out += b">%d\r\n" % len(items) + b"".join(encode(item) for item in items)

    def _command(self) -> list[str] | None:
        """One whole command, or None. Many may come in one piece, so nothing behind it is copied."""
        data, at = self._data, self._at
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        if data[at : at + 1] != b"*":
            raise ProtocolError("the client does not speak RESP")
        count, at = int(data[at + 1 : end]), end + 2
        words: list[str] = []
        for _ in range(count):
            end = data.find(b"\r\n", at)
            size = int(data[at + 1 : end]) if end >= 0 else 0
            if end < 0 or len(data) < end + size + 4:
                return None
            words.append(data[end + 2 : end + 2 + size].decode())
            at = end + size + 4
        self._at = at
        return words

    def close(self) -> None:
        if self.open:
            self.open = False
            self._server.left(self)


def encode(value: Any) -> bytes:
    """A value as RESP 3."""
    if value is None:
        return b"_\r\n"
    if isinstance(value, bool):
        return b"#t\r\n" if value else b"#f\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        return command([value]).partition(b"\r\n")[2]
    if isinstance(value, dict):
        return b"%%%d\r\n" % len(value) + b"".join(encode(k) + encode(v) for k, v in value.items())
    return b"*%d\r\n" % len(value) + b"".join(encode(item) for item in value)
