"""Watches: events under a prefix, in order, over one connection after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ._channel import Channel, Request
from ._errors import LeaseError, closed_error
from ._future import Future

#: Events were missed and cannot be delivered any more: read anew.
RESYNC: list[dict[str, Any]] = [{"type": "resync"}]

Listener = Callable[["list[dict[str, Any]]"], None]


class Stream:
    """Items from the engine to a reader that waits for one at a time. Used with the engine's lock held."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Future[Any]] = deque()
        self._error: LeaseError | None = None
        self.closed = False

    def push(self, item: Any) -> None:
        while self._waiting:
            if self._waiting.popleft().set_result(item):
                return
        if not self.closed:
            self._items.append(item)

    def end(self, error: LeaseError | None = None) -> None:
        """Readers get ``error``, or ``None`` as the last item."""
        self.closed = True
        self._error = error
        while self._waiting:
            self._settle(self._waiting.popleft())

    def next(self) -> Future[Any]:
        future: Future[Any] = Future()
        if self._items:
            future.set_result(self._items.popleft())
        elif self.closed:
            self._settle(future)
        else:
            self._waiting.append(future)
        return future

    def _settle(self, future: Future[Any]) -> None:
        if self._error is None:
            future.set_result(None)
        else:
            future.set_exception(self._error)


class Watch:
    """One prefix. Its listeners share one subscription, since a connection may watch a prefix once."""

    def __init__(self, watches: Watches, prefix: str) -> None:
        self._watches = watches
        self.prefix = prefix
        self.listeners: list[Listener] = []
        #: All events up to here were delivered. None until the server has said where the watch begins.
        self.revision: int | None = None
        self.active = False
        #: The present connection tells of everything that happens.
        self.current = False
        self.begun: list[Future[int]] = []

    def subscribe(self) -> None:
        words: tuple[str | int, ...] = ("LEASE.WATCH", self.prefix)
        if self.revision is not None:
            words += ("AFTER", self.revision)
        self.active = True
        self._watches.channel.send(words, self._answered, kind="read", timeout=float("inf"))

    def _answered(self, value: Any, error: LeaseError | None, request: Request) -> None:
        if error is not None:
            self.active = False
            self._watches.forget(self)
            for future in self.begun:
                future.set_exception(error)
            return
        self.current = True
        if self.revision is None:
            self.revision = int(value)
        begun, self.begun = self.begun, []
        for future in begun:
            future.set_result(self.revision)

    def deliver(self, events: list[dict[str, Any]]) -> None:
        for listener in list(self.listeners):
            listener(events)


class Watches:
    """All watches of a client. After a reconnect each goes on after the last revision it has delivered."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._watches: dict[str, Watch] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def begin(self, prefix: str, listener: Listener) -> Future[int]:
        """Resolves with the revision after which the listener is told of everything."""
        future: Future[int] = Future()
        if self.channel.closed:
            future.set_exception(closed_error())
            return future
        watch = self._watches.get(prefix)
        if watch is None:
            watch = self._watches[prefix] = Watch(self, prefix)
        watch.listeners.append(listener)
        if watch.revision is not None:
            future.set_result(watch.revision)
            return future
        watch.begun.append(future)
        if not watch.active:
            watch.subscribe()
        return future

    def end(self, prefix: str, listener: Listener) -> None:
        watch = self._watches.get(prefix)
        if watch is None or listener not in watch.listeners:
            return
        watch.listeners.remove(listener)
        if not watch.listeners:
            del self._watches[prefix]
            if self.channel.ready:
                self.channel.send(("LEASE.UNWATCH", prefix), lambda value, error, request: None, kind="read")

    def current(self, prefix: str) -> bool:
        """Whether silence on the connection means that nothing happened under the prefix."""
        watch = self._watches.get(prefix)
        return watch is not None and watch.current

    def forget(self, watch: Watch) -> None:
        if self._watches.get(watch.prefix) is watch:
            del self._watches[watch.prefix]

    def close(self) -> None:
        for watch in list(self._watches.values()):
            watch.deliver([{"type": "closed"}])
        self._watches.clear()

    def connection_made(self, continues: bool) -> None:
        for watch in list(self._watches.values()):
            # One that has no revision yet is asked again by the channel itself.
            fresh = watch.revision is None
            if not continues:
                watch.revision = None
            if not watch.active or not fresh:
                watch.subscribe()
            # Its reader reads after the watch has begun: nothing between the two is missed.
            if not continues and not fresh:
                watch.deliver(RESYNC)

    def connection_lost(self) -> None:
        for watch in self._watches.values():
            watch.current = False
            if watch.revision is not None:
                watch.active = False

    def pushed(self, items: list[Any]) -> None:
        watch = self._watches.get(items[1]) if len(items) > 2 and isinstance(items[1], str) else None
        if watch is None:
            return
        if items[0] == "lease.unwatched":
            # The server ended it. It may have been for a reason that passes: go on where it stopped.
            watch.active = False
            error = items[2] if isinstance(items[2], LeaseError) else LeaseError("UNAVAILABLE", "the watch was ended")
            if error.code in ("UNAVAILABLE", "UNKNOWN"):
                watch.subscribe()
            else:
                self.forget(watch)
                watch.deliver([{"type": "ended", "code": error.code, "message": error.message}])
            return
        events = _events(items)
        if not events:
            return
        if events[0].get("type") == "resync" or watch.revision is None or items[2] > watch.revision:
            watch.revision = items[2] if isinstance(items[2], int) else watch.revision
            watch.deliver(events)


def _events(items: list[Any]) -> list[dict[str, Any]]:
    try:
        import json  # only where it is used

        events = json.loads(items[3])
    except (IndexError, TypeError, ValueError):
        return []
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
