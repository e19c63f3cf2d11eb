"""Numbered slots for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lease import Lease

if TYPE_CHECKING:
    from .._core import Core
    from .._held import Held


class Slot(Lease):
    """As ``leasehold_client.slots.Slot``."""

    def __init__(self, core: Core, held: Held, number: int) -> None:
        super().__init__(core, held)
        #: One of the range; no other holder has it.
        self.number = number

    async def __aenter__(self) -> Slot:
        await super().__aenter__()
        return self
