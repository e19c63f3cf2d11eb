"""What has to be done in a child after a fork, where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(call: Callable[[], object]) -> None:
    """Calls it in every child that is forked from here on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
