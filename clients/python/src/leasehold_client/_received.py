"""Errors as they arrive from a server: of this version, of an earlier one that sends no reason, or of a later one with other reasons."""

from __future__ import annotations

import math
import re
from typing import Any

from ._errors import LeaseError
from ._wording import plain_sentence, sentence

_MAX_FACTS = 64
_MAX_NAME = 64
# A path has up to 4,096 bytes.
_MAX_TEXT = 4096
_MAX_ITEMS = 1024
_REASON = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")


def received_error(code: str, message: str, rest: object = None) -> LeaseError:
    """``rest`` has the facts, and the reason among them. What has no expected form or size is left out."""
    facts = _facts(rest)
    reason = _reason(rest)
    if reason is None:
        return LeaseError(code, message, facts)
    text = sentence(reason, facts) or message or plain_sentence(code, reason, facts)
    return LeaseError(code, text, facts, reason=reason)


def _reason(rest: object) -> str | None:
    reason = rest.get("reason") if isinstance(rest, dict) else None
    return reason if isinstance(reason, str) and _REASON.match(reason) else None


def _facts(rest: object) -> dict[str, Any]:
    if not isinstance(rest, dict):
        return {}
    facts: dict[str, Any] = {}
    for name, value in rest.items():
        if not isinstance(name, str) or name in ("code", "message", "reason") or len(name) > _MAX_NAME:
            continue
        if _is_fact(value):
            facts[name] = value
        if len(facts) == _MAX_FACTS:
            break
    return facts


def _is_fact(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= _MAX_ITEMS and all(_is_item(item) and isinstance(item, str) == isinstance(value[0], str) for item in value)
    return isinstance(value, bool) or _is_item(value)


def _is_item(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_TEXT
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
