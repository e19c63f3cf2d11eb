"""Random numbers for jitter and for names that must be unique. Not the module ``secrets``: it takes longer to import than this client."""

from __future__ import annotations

import os


def fraction() -> float:
    """From 0 to below 1."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def unique_name() -> str:
    """64 random bits, in 16 letters."""
    return os.urandom(8).hex()
