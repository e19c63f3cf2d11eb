"""Knows which leases the calling code works under: those of the ``with`` blocks that it is in.

A request names them to the server, which refuses at once a wait that they would keep from ending.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import Core
    from ._held import Held

#: Outermost first. Tasks that are started in a block inherit it; threads do not.
_blocks: ContextVar[tuple[tuple[Core, Held], ...]] = ContextVar("leasehold_blocks", default=())


def leases_around(core: Core) -> tuple[Held, ...]:
    """Only those of this client: the numbers of another one mean nothing to its server. Those that are over do not count."""
    return tuple(held for other, held in _blocks.get() if other is core and held.reason is None)


def enter_block(core: Core, held: Held) -> None:
    _blocks.set((*_blocks.get(), (core, held)))


def leave_block(held: Held) -> None:
    """Not by a token of the variable: a block may end in another context than it began in, as that of a generator."""
    blocks = list(_blocks.get())
    for at in range(len(blocks) - 1, -1, -1):
        if blocks[at][1] is held:
            del blocks[at]
            break
    _blocks.set(tuple(blocks))
