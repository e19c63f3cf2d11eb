"""Registrations as they are stored: entries on the lease of an instance, in the form that ``src/registry/entry.ts`` defines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._errors import LeaseError

SERVICES = "services"
STATUSES = ("passing", "warning", "critical", "draining", "maintenance")
#: What clients see besides: not checked yet, missed a renewal, lapsed too often.
INSTANCE_STATUSES = (*STATUSES, "unknown", "suspect", "suppressed")

MAX_METADATA, MAX_DEPTH, MAX_WORDS, MAX_WORD, MAX_ADDRESSES, MAX_WEIGHT, MAX_LOAD = 8_192, 16, 64, 128, 16, 65_535, 1e9
MAX_NAME = 512
_RESERVED = {"__proto__", "constructor", "prototype"}
_FIELDS = ("addresses", "capabilities", "tags", "metadata", "weight", "zone", "generation", "check")


class InstanceState(NamedTuple):
    """The part of a registration that changes often."""

    status: str = "passing"
    load: float = 0


class Instance(NamedTuple):
    """An instance as it was registered, with all defaults filled in."""

    service: str
    instance: str
    addresses: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Any = None
    weight: int = 1
    zone: str = ""
    generation: int = 0
    check: Any = None

    @property
    def name(self) -> str:
        return f"{self.service}/{self.instance}"

    @property
    def key(self) -> str:
        return f"{SERVICES}/{self.service}/{self.instance}"

    @property
    def value(self) -> str:
        """The entry's value. Fields with default values are left out."""
        fields: dict[str, Any] = {"addresses": list(self.addresses)}
        for name, default in (("capabilities", ()), ("tags", ()), ("metadata", None), ("weight", 1), ("zone", "")):
            value = getattr(self, name)
            if value != default:
                fields[name] = list(value) if isinstance(value, tuple) else value
        if self.generation > 0:
            fields["generation"] = self.generation
        if self.check is not None:
            fields["check"] = self.check
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def instance_of(service: str, instance: str, fields: Mapping[str, Any]) -> Instance:
    """Checks a registration and fills in its defaults. Raises ``INVALID``, naming the field and what is expected."""
    for name in fields:
        if name not in (*_FIELDS, "address"):
            known = ", ".join(("service", "instance", "address", *_FIELDS))
            raise _invalid(f"a registration has no field {name!r}; it has {known}")
    if "address" in fields and "addresses" in fields:
        raise _invalid("set address or addresses, not both")
    addresses = fields.get("addresses", [fields["address"]] if fields.get("address") is not None else [])
    check = fields.get("check")
    made = Instance(
        _segment(service, "service"),
        _segment(instance, "instance"),
        tuple(_address(address) for address in _list(addresses, MAX_ADDRESSES, "addresses")),
        _words(fields.get("capabilities", ()), "capabilities"),
        _words(fields.get("tags", ()), "tags"),
        _metadata(fields.get("metadata")),
        _whole(fields.get("weight", 1), MAX_WEIGHT, "weight"),
        _zone(fields.get("zone", "")),
        _whole(fields.get("generation", 0), 2**53 - 1, "generation"),
        {"url": check} if isinstance(check, str) else check,
    )
    bad = bad_name(made.key)
    if bad:
        raise _invalid(f"the names of service and instance together: {bad}")
    return made


def read_instance(key: str, value: str) -> Instance | None:
    """Parses an entry. Who may write entries may write anything, so everything is checked again. None: it is no registration."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != SERVICES:
        return None
    try:
        fields = json.loads(value)
        return instance_of(parts[1], parts[2], {name: fields[name] for name in fields if name not in ("service", "instance")})
    except (LeaseError, ValueError, TypeError, KeyError, RecursionError):
        return None


def state_of(before: InstanceState, status: Any = None, load: Any = None) -> InstanceState:
    """``before`` with the changes. Raises ``INVALID``."""
    if status is not None and status not in STATUSES:
        raise _invalid(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
    if load is not None and (isinstance(load, bool) or not isinstance(load, (int, float)) or not 0 <= load <= MAX_LOAD):
        raise _invalid(f"load must be a number from 0 to {MAX_LOAD:g}, not {load!r}")
    return InstanceState(before.status if status is None else status, before.load if load is None else load)


def state_value(state: InstanceState) -> str:
    return json.dumps({"status": state.status, "load": state.load}, separators=(",", ":"))


def read_state(value: str) -> InstanceState:
    try:
        fields = json.loads(value)
        return state_of(InstanceState(), fields.get("status"), fields.get("load"))
    except (LeaseError, ValueError, AttributeError, RecursionError):
        return InstanceState()


def read_check(value: str) -> tuple[str, str] | None:
    """Status and reason of a health check."""
    try:
        fields = json.loads(value)
        status = fields.get("status")
    except (ValueError, AttributeError, RecursionError):
        return None
    return (status, str(fields.get("reason") or "")) if status in ("passing", "warning", "critical") else None


def bad_name(name: object) -> str | None:
    """What is wrong with a name, as the kernel would say it."""
    if not isinstance(name, str):
        return "must be a text"
    if name == "":
        return "is empty"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
        return f"is longer than {MAX_NAME} bytes"
    if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name):
        return "contains a control character"
    return None


def _invalid(text: str) -> LeaseError:
    return LeaseError("INVALID", text)


def _segment(name: object, what: str) -> str:
    bad = bad_name(name) or ("contains a slash" if "/" in str(name) else None)
    if bad:
        raise _invalid(f"the name of the {what} {bad}")
    if name in _RESERVED:
        raise _invalid(f"{name!r} cannot be the name of a {what}")
    return str(name)


def _list(value: Any, most: int, what: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _invalid(f"{what} must be a list, not {value!r}")
    items = list(value)
    if len(items) > most:
        raise _invalid(f"{what} has {len(items)} items, and at most {most} are allowed")
    return items


def _words(value: Any, what: str) -> tuple[str, ...]:
    for item in (items := _list(value, MAX_WORDS, what)):
        bad = bad_name(item) or (f"is longer than {MAX_WORD} bytes" if len(str(item).encode()) > MAX_WORD else None)
        if bad:
            raise _invalid(f"{item!r} in {what} {bad}")
        if item in _RESERVED:
            raise _invalid(f"{what} cannot contain {item!r}")
    return tuple(dict.fromkeys(items))


def _zone(zone: Any) -> str:
    bad = None if zone == "" else bad_name(zone)
    if bad or len(str(zone).encode()) > MAX_WORD:
        raise _invalid(f"the zone {bad or f'is longer than {MAX_WORD} bytes'}")
    return str(zone)


def _whole(value: Any, most: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _invalid(f"{what} must be a whole number from 0 to {most}, not {value!r}")
    return value


_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?")


def _address(address: Any) -> str:
    if not isinstance(address, str) or len(address) > 512:
        raise _invalid(f"an address is a string of at most 512 characters, not {address!r}")

    def wrong(why: str) -> LeaseError:
        return _invalid(f"the address {address!r} {why}: write http://10.0.0.7:8080, tcp://host:5000 or host:5000")

    if re.search(r"[\x00-\x20\x7f-\x9f<>\"'`\\^{|}]", address):
        raise wrong("contains a character that is not allowed in an address")
    scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]{0,31}://", address)
    rest = address[scheme.end() :] if scheme else address
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if scheme is None and authority != rest:
        raise wrong("has a path and no scheme")
    if "@" in authority:
        raise wrong("contains a user name or a password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise wrong("has no host")
    if scheme is None and match[2] is None:
        raise wrong("has neither a scheme nor a port")
    if match[2] is not None and not 1 <= int(match[2]) <= 65_535:
        raise wrong("has a port outside 1 to 65535")
    return address


def _metadata(metadata: Any) -> Any:
    _check_json(metadata, 1)
    if len(json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")) > MAX_METADATA:
        raise _invalid(f"metadata is longer than {MAX_METADATA} bytes of JSON")
    return metadata


def _check_json(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _invalid(f"metadata is nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str) or name in _RESERVED:
                raise _invalid(f"metadata cannot have the field {name!r}")
            _check_json(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_json(item, depth + 1)
    elif not (
        value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and value == value and abs(value) != 1e999)
    ):
        raise _invalid(f"metadata must be JSON, not {type(value).__name__}")
