"""Durations: seconds as a number, a text such as ``'30s'``, ``'500ms'``, ``'5m'`` or ``'1h30m'``, or a ``timedelta``."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Union

from ._errors import LeaseError

if TYPE_CHECKING:
    from datetime import timedelta

Duration = Union[float, int, str, "timedelta"]

_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_TEXT = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: Duration, name: str) -> float:
    """The duration in seconds. Raises ``INVALID`` for anything that is not a finite duration of at least zero."""
    if isinstance(value, str):
        import re  # only where it is used: importing it takes longer than this client

        if re.fullmatch(_TEXT, value) is not None:
            return math.fsum(float(amount) * _SECONDS[unit] for amount, unit in re.findall(_PART, value))
        hint = f". Add a unit: '{value}s'?" if value.isdigit() else ""
        raise _invalid(name, repr(value[:32]) + hint)
    # A program that has a timedelta has loaded its module; this client does not.
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise _invalid(name, repr(value)[:40])
    return float(value)


def _invalid(name: str, shown: str) -> LeaseError:
    return LeaseError(
        "INVALID", f"{name} must be seconds, a text such as '30s', '5m' or '1h30m', or a timedelta, not {shown}", {"option": name}
    )


def in_words(duration: float) -> str:
    """For messages: ``4.2 s``, ``350 ms``, ``3 min``."""
    if duration < 1:
        return f"{round(duration * 1000)} ms"
    if duration < 120:
        return f"{round(duration, 1):g} s"
    return f"{round(duration / 60)} min" if duration < 7200 else f"{round(duration / 3600, 1):g} h"
