"""Where a server is: ``leasehold://host:port,host:port``, or ``leaseholds://`` with TLS."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from ._errors import LeaseError

if TYPE_CHECKING:
    import ssl

PORT = 7420


class Address(NamedTuple):
    """One server."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def dial(self, timeout: float) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def parse(url: str | None, tls: ssl.SSLContext | None) -> tuple[list[Address], str | None]:
    """The addresses, and the key if the URL carries one."""
    text = url or os.environ.get("LEASEHOLD_URL") or f"leasehold://127.0.0.1:{PORT}"
    parts = urlsplit(text)
    credentials, _, hosts = parts.netloc.rpartition("@")
    # Not the whole URL: it may carry a key.
    shown = f"{parts.scheme}://{hosts}"
    if parts.scheme not in ("leasehold", "leaseholds"):
        raise LeaseError("INVALID", f"this client talks to a server: write leasehold://host:{PORT}, not {shown}", {"url": shown})
    names = [host for host in hosts.split(",") if host]
    if not names:
        raise LeaseError("INVALID", f"{shown} names no server: write leasehold://host:{PORT}, or leasehold://host:{PORT},host2:{PORT}")
    if tls is not None and parts.scheme == "leasehold":
        raise LeaseError("INVALID", f"tls needs leaseholds://: {shown} is not encrypted", {"option": "tls"})
    context = None
    if parts.scheme == "leaseholds":
        context = tls or _context(shown, parse_qs(parts.query).get("ca", [None])[0])
    key = unquote(credentials.partition(":")[2] or credentials) if credentials else None
    return [_address(host, context) for host in names], key or os.environ.get("LEASEHOLD_API_KEY")


def _context(shown: str, ca: str | None) -> ssl.SSLContext:
    import ssl  # only where it is used: it is a large part of the time that importing this client takes

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise LeaseError("INVALID", f"{shown} names {ca}, which cannot be read: {error}") from error


def try_again_errors(addresses: list[Address]) -> tuple[type[OSError], ...]:
    """What a socket raises when it has nothing to read, or no room to write."""
    if all(address.tls is None for address in addresses):
        return (BlockingIOError,)
    import ssl

    return (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _address(text: str, tls: ssl.SSLContext | None) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise LeaseError("INVALID", f"{text!r} is no address: write host:{PORT}")
    return Address(host.strip("[]"), int(port), tls)
