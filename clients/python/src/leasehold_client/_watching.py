"""A watch in the hands of a program."""

from __future__ import annotations

from typing import Any

from ._core import Core
from ._errors import LeaseError
from ._flow import Flow
from ._future import Future
from ._watch import Stream


class Watching:
    """Events as a stream. ``next`` gives a future of one revision's events; None after ``close``."""

    def __init__(self, core: Core, prefix: str) -> None:
        self._core = core
        self._prefix = prefix
        self._stream = Stream()
        self.revision = 0

    def tell(self, events: list[dict[str, Any]]) -> None:
        if events and events[0].get("type") == "ended":
            self._stream.end(LeaseError(str(events[0].get("code")), str(events[0].get("message"))))
        elif events and events[0].get("type") == "closed":
            self._stream.end()
        else:
            self._stream.push(events)

    def next(self) -> Future[Any]:
        """The next revision's events. Also after the client was closed: then it is None."""
        if self._stream.closed:
            return self._stream.next()
        return self._core.do(lambda engine: self._stream.next())

    def close(self) -> None:
        def end(engine: Any) -> None:
            engine.watches.end(self._prefix, self.tell)
            self._stream.end()

        self._core.owner.post(end)


def watch_flow(core: Core, prefix: str) -> Flow[Watching]:
    """A watch that has begun."""
    watching = Watching(core, prefix)
    try:
        watching.revision = yield core.do(lambda engine: engine.watches.begin(prefix, watching.tell))
    except BaseException:
        watching.close()
        raise
    return watching
