"""The addresses of servers."""

from __future__ import annotations

import pathlib

import pytest

from leasehold_client import LeaseError
from leasehold_client._address import parse


def test_a_path_is_a_unix_socket() -> None:
    ((address,), key) = parse("leasehold://:secret@/run/lease%20hold.sock", None)
    assert (str(address), address.port, key) == ("/run/lease hold.sock", 0, "secret")


def test_an_empty_variable_names_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_API_KEY", "")
    assert parse("leasehold://host", None)[1] is None
    monkeypatch.setenv("LEASEHOLD_API_KEY", "secret")
    assert parse("leasehold://host", None)[1] == "secret"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("leasehold://host/path", "a path may not follow the hosts"),
        ("leasehold://host?tls=1", "there is no setting tls"),
        ("leaseholds:///run/leasehold.sock", "names no server"),
        ("leaseholds://host?key=k.pem", r"\?cert=FILE&key=FILE"),
        ("leaseholds://host?cert=missing.pem", "missing.pem, which cannot be read"),
        ("redis://host", "write leasehold://host:7420"),
        ("leasehold://host:99999", "is no address"),
    ],
)
def test_a_wrong_address_says_what_to_write(url: str, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LeaseError, match=message) as caught:
        parse(url, None)
    assert caught.value.code == "INVALID"
