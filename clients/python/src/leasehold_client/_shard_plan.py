"""Which member should have which shard: a pure function of the members and of who has what now, so that all members compute the same.

It is that of the TypeScript library (``src/recipe/shards/shard-plan.ts``), number for number: members of both languages share a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ._rendezvous import draw, hash_of


class ShardMember(NamedTuple):
    """``id`` is unique. A member that comes back under its ``name`` gets much the same shards."""

    id: str
    name: str


def plan_shards(count: int, members: Sequence[ShardMember], owners: Mapping[int, str]) -> list[str | None]:
    """The id of the member of each shard, by index. ``owners``: that of the member that has each shard now."""
    plan: list[str | None] = [None] * count
    if not members:
        return plan
    ranked = sorted(((_signed(hash_of(member.name)), member.id, hash_of(member.name)) for member in members), key=lambda each: each[:2])
    # The same number for each, and the first ones of a fixed order get the remainder, one each.
    each, rest = divmod(count, len(ranked))
    room = {member: each + (1 if at < rest else 0) for at, (_, member, _) in enumerate(ranked)}
    hashes = [hash_of(str(shard)) for shard in range(count)]
    for _, member, hashed in ranked:
        # What it draws highest for, it keeps longest.
        owned = sorted(
            (shard for shard, owner in owners.items() if owner == member and shard < count),
            key=lambda shard, hashed=hashed: (-draw(hashed, hashes[shard]), shard),  # type: ignore[misc]
        )
        for shard in owned[: room[member]]:
            plan[shard] = member
        room[member] = max(0, room[member] - len(owned))
    for shard in range(count):
        if plan[shard] is not None:
            continue
        best, highest = None, -1
        for _, member, hashed in ranked:
            drawn = draw(hashed, hashes[shard]) if room[member] > 0 else -1
            if drawn > highest:
                best, highest = member, drawn
        if best is not None:
            plan[shard] = best
            room[best] -= 1
    return plan


def _signed(number: int) -> int:
    """As JavaScript compares what its bit operators return."""
    return number - 0x1_0000_0000 if number >= 0x8000_0000 else number
