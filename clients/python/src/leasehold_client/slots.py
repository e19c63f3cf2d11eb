"""Numbered slots for threads: a port, a worker number or a test database for each holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._sync import Lease

if TYPE_CHECKING:
    from ._core import Core
    from ._held import Held

__all__ = ["Slot"]


class Slot(Lease):
    """A number in hand. Get one from ``leases.slot(name, numbers)``.

    >>> with leases.slot("ports", range(3000, 3100), sticky="checkout-service") as slot:
    ...     server.listen(slot.number)
    """

    def __init__(self, core: Core, held: Held, number: int) -> None:
        super().__init__(core, held)
        #: One of the range; no other holder has it.
        self.number = number

    def __enter__(self) -> Slot:
        super().__enter__()
        return self
