"""Sentences for people, made of the reason of a refusal and its facts, with the templates of the TypeScript library (``_sentences.py``).

``{fact}`` is replaced by the fact. ``[…]`` is shown only if every fact in it is given and neither 0, false nor empty; ``{fact?}`` in it
tests without printing. Formatters: ``{names|list}`` joins with commas, ``{cycle|path}`` with arrows, ``{count|members}`` counts members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ._sentences import SENTENCES

_PLACEHOLDER = re.compile(r"\{(\w+)(?:\|(\w+)|(\?))?\}", re.ASCII)
_OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+(?:\|\w+|\?)?\}[^\[\]]*)\]", re.ASCII)

# Forms of lists; the others are forms of numbers.
_LISTS = ("list", "path")


def sentence(reason: str, facts: Mapping[str, Any]) -> str | None:
    """None for a reason that is not known here, or if a fact that the sentence needs is missing or of another type."""
    template = SENTENCES.get(reason)
    if template is None:
        return None
    complete = True

    def optional(match: re.Match[str]) -> str:
        part = match[1]
        return part if all(_is_given(facts.get(name[1])) for name in _PLACEHOLDER.finditer(part)) else ""

    def fill(match: re.Match[str]) -> str:
        nonlocal complete
        name, form, tests = match.groups()
        if tests is not None:
            return ""
        fact = facts.get(name)
        fits = isinstance(fact, list | tuple) if form in _LISTS else isinstance(fact, int | float) and not isinstance(fact, bool)
        if fact is None or (form is not None and not fits):
            complete = False
            return ""
        return _formatted(fact, form)

    text = _PLACEHOLDER.sub(fill, _OPTIONAL.sub(optional, template))
    return text if complete else None


def plain_sentence(code: str, reason: str, facts: Mapping[str, Any]) -> str:
    """All that is known, for a reason without a sentence."""
    known = "; ".join(
        f"{name} {', '.join(map(_text, fact)) if isinstance(fact, list | tuple) else _text(fact)}" for name, fact in facts.items()
    )
    return f"refused ({code}, {reason})" + (f": {known}" if known else "")


def _is_given(fact: object) -> bool:
    return fact is not None and fact != 0 and fact != "" and fact != []


def _formatted(fact: Any, form: str | None) -> str:
    if form == "list":
        return ", ".join(dict.fromkeys(map(_text, fact)))
    if form == "path":
        return " → ".join(map(_text, fact))
    if form == "members":
        return "1 member" if fact == 1 else f"{_text(fact)} members"
    if form == "time":
        return _exact_time(fact)
    return ",".join(map(_text, fact)) if isinstance(fact, list | tuple) else _text(fact)


_TIME_UNITS = (
    (172_800_000, 86_400_000, "d"),
    (3_600_000, 3_600_000, "h"),
    (60_000, 60_000, "min"),
    (1_000, 1_000, "s"),
    (0, 1, "ms"),
)


def _exact_time(ms: float) -> str:
    """A duration without rounding: `24 h`, `90 s`, `1500 ms`."""
    unit, name = next((each, name) for least, each, name in _TIME_UNITS if ms >= least and (each == 1 or ms % each == 0))
    return f"{_text(ms if unit == 1 else ms / unit)} {name}"


def _text(fact: object) -> str:
    # As JavaScript writes them.
    if isinstance(fact, bool):
        return "true" if fact else "false"
    if isinstance(fact, float) and fact.is_integer():
        return str(int(fact))
    return str(fact)
