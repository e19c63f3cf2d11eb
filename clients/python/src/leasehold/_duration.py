"""Durations: seconds as a number, or a text such as ``'30s'``, ``'500ms'``, ``'5m'``, ``'2h'``, ``'1d'``."""

from __future__ import annotations

import math
import re

from ._errors import LeaseError

Duration = float | int | str

_TEXT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: Duration, name: str) -> float:
    """The duration in seconds. Raises ``INVALID`` for anything that is not a finite duration of at least zero."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            raise LeaseError("INVALID", f"{name} must be seconds or a text such as '30s', not {value!r}", {"option": name})
        return float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise LeaseError("INVALID", f"{name} must be seconds or a text such as '30s', not {value!r}", {"option": name})
    return float(value)


def milliseconds(value: Duration, name: str) -> int:
    return math.ceil(seconds(value, name) * 1000)
