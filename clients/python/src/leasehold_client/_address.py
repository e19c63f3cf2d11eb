"""Where a server is: ``leasehold://host:port,host:port``, ``leaseholds://`` with TLS, or ``leasehold:///path`` of a unix socket."""

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
    """One server. The host is the path of a unix socket when the port is 0."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host

    def dial(self, timeout: float) -> socket.socket:
        if self.port == 0:
            return _dial_path(self.host, timeout)
        plain = socket.create_connection((self.host, self.port), timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _dial_path(path: str, timeout: float) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no unix sockets")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


def parse(url: str | None, tls: ssl.SSLContext | None) -> tuple[list[Address], str | None]:
    """The addresses, and the key if the URL carries one."""
    text = url or os.environ.get("LEASEHOLD_URL") or f"leasehold://127.0.0.1:{PORT}"
    parts = urlsplit(text)
    credentials, _, hosts = parts.netloc.rpartition("@")
    # Not the whole URL: it may carry a key.
    shown = f"{parts.scheme}://{hosts}"
    if parts.scheme not in ("leasehold", "leaseholds"):
        raise LeaseError("INVALID", f"this client talks to a server: write leasehold://host:{PORT}, not {shown}", {"url": shown})
    settings = parse_qs(parts.query)
    for name in settings:
        if name not in ("ca", "cert", "key"):
            raise LeaseError("INVALID", f"{shown} cannot be used: there is no setting {name}", {"url": shown})
    key = (unquote(credentials.partition(":")[2] or credentials) if credentials else None) or os.environ.get("LEASEHOLD_API_KEY") or None
    if not hosts and len(parts.path) > 1 and parts.scheme == "leasehold":
        return [Address(unquote(parts.path), 0)], key
    if hosts and len(parts.path) > 1:
        raise LeaseError("INVALID", f"{shown} cannot be used: a path may not follow the hosts", {"url": shown})
    names = [host for host in hosts.split(",") if host]
    if not names:
        raise LeaseError("INVALID", f"{shown} names no server: write leasehold://host:{PORT}, or leasehold://host:{PORT},host2:{PORT}")
    if tls is not None and parts.scheme == "leasehold":
        raise LeaseError("INVALID", f"tls needs leaseholds://: {shown} is not encrypted", {"option": "tls"})
    context = None
    if parts.scheme == "leaseholds":
        context = tls or _context(shown, *(settings.get(name, [None])[0] for name in ("ca", "cert", "key")))
    return [_address(host, context) for host in names], key


def _context(shown: str, ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """With ``certificate``, the client shows who it is by a certificate of its own."""
    import ssl  # only where it is used: it is a large part of the time that importing this client takes

    if key is not None and certificate is None:
        raise LeaseError("INVALID", f"{shown} names a key and no cert that it belongs to: write ?cert=FILE&key=FILE", {"url": shown})
    named = ca
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            named = certificate if key is None else f"{certificate} and {key}"
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise LeaseError("INVALID", f"{shown} names {named}, which cannot be read: {error}", {"url": shown}) from error
    return context


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
