"""Rendezvous hashing: each candidate draws a number for a key, and the highest draw wins.

Number for number as in the TypeScript library: processes of both languages choose the same. So these functions never change.
"""

from __future__ import annotations


def draw(candidate: int, key: int) -> int:
    """What the candidate with one hash draws for the key with another: a whole number from 0 to 2^32 - 1."""
    return mix(candidate ^ key)


def hash_of(text: str) -> int:
    """FNV-1a over UTF-16 code units, finalized by ``mix``."""
    h = 0x811C9DC5
    data = text.encode("utf-16-le", "surrogatepass")
    for i in range(0, len(data), 2):
        h = ((h ^ (data[i] | data[i + 1] << 8)) * 0x01000193) & 0xFFFFFFFF
    return mix(h)


def mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)
