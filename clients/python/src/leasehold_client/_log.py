"""What the client reports to ``logging``, under the name ``leasehold_client``.

A program that has not loaded ``logging`` has no handler that could show anything, so this client does not load it: that takes longer than
to import the client.
"""

from __future__ import annotations

import sys
from typing import Any

NAME = "leasehold_client"
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


def logger_for(level: int) -> Any:
    """The logger, or None: records of that level go nowhere."""
    logging = sys.modules.get("logging")
    get: Any = getattr(logging, "getLogger", None)  # a module that is still being loaded has none
    if logging is None or get is None:
        return None
    logger = get(NAME)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # without one, warnings go to stderr in programs that configure nothing
    return logger if logger.isEnabledFor(level) else None


def log_failure(text: str, error: BaseException) -> None:
    """A failure of code that no caller could catch."""
    logger = logger_for(ERROR)
    if logger is not None:
        logger.error(text, exc_info=error)
