"""The registry, without regard to how its user waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ._core import Core
from ._directory import STRATEGIES, Directory, Filter, ListedInstance
from ._duration import Duration, in_words, seconds
from ._entry import InstanceState, instance_of, state_of
from ._errors import LeaseError, closed_error
from ._flow import Flow
from ._registration import Registered, Registrar

#: Discovery fails after this long without a first answer.
LOAD_TIMEOUT = 10.0


class RegistryCore:
    """What the sync and asyncio forms of the registry share."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._registrar = Registrar(core.engine)
        self._directory: Directory | None = None
        core.engine.closers.append(self._deregister_all)

    def register(
        self,
        service: str,
        instance: str | None,
        ttl: Duration,
        grace: Duration | None,
        wait: Duration,
        status: str | None,
        load: float | None,
        on_event: Callable[[str, LeaseError | None], None] | None,
        fields: Mapping[str, Any],
    ) -> Flow[Registered]:
        term = seconds(ttl, "ttl")
        name = instance if instance is not None else self.core.engine.options.holder.replace("/", "-")
        made = instance_of(service, name, {key: value for key, value in fields.items() if value is not None})
        registered = Registered(
            self.core.engine,
            made,
            state_of(InstanceState(), status, load),
            term,
            term / 2 if grace is None else seconds(grace, "grace"),
        )
        registered.on_event = on_event
        limit = seconds(wait, "wait")
        future = self.core.do(lambda engine: self._registrar.register(registered, limit))
        try:
            yield future
        except BaseException as error:
            if not isinstance(error, LeaseError):
                self.core.owner.post(lambda engine: registered.end(LeaseError("GONE", "the registration was cancelled")))
            raise
        return registered

    def update(self, registered: Registered, status: str | None, load: float | None, fields: Mapping[str, Any]) -> Flow[None]:
        if registered.reason is not None:
            raise registered.reason
        made = registered.instance
        if fields:
            given = {name: value for name, value in made._asdict().items() if name not in ("service", "instance")}
            if "address" in fields:
                del given["addresses"]
            made = instance_of(made.service, made.instance, {**given, **fields})
        state = state_of(registered.state, status, load)
        yield self.core.do(lambda engine: registered.update(made, state))

    def deregister(self, registered: Registered, drain: float) -> Flow[None]:
        if drain > 0 and registered.lease != 0:
            try:
                yield from self.update(registered, "draining", None, {})
                yield self.core.sleep(drain)
            except LeaseError:
                pass  # the server does not answer: leave all the same
        reason = LeaseError("GONE", f"{registered.instance.name} was deregistered")
        yield self.core.do(lambda engine: registered.end(reason))

    def _deregister_all(self) -> list[Future[None]]:
        return [each.end(LeaseError("GONE", f"{each.instance.name} was deregistered")) for each in self._registrar.all()]

    # Discovery

    @property
    def directory(self) -> Directory:
        if self._directory is None:
            self._directory = Directory(self.core.engine)
        directory = self._directory
        self.core.do(lambda engine: directory.begin())
        return directory

    def ready(self) -> Flow[Directory]:
        """The directory, once it was loaded."""
        directory = self.directory
        end = self.core.now() + LOAD_TIMEOUT
        while not directory.loaded:
            if directory.failure is not None and directory.failure.code in ("FORBIDDEN", "UNAUTHENTICATED"):
                raise directory.failure
            if self.core.now() >= end or (directory.failure is not None and "tried" in directory.failure.facts):
                text = "no service is known yet: the lessor has not answered"
                raise directory.failure or LeaseError("UNAVAILABLE", text)
            yield self.core.do(lambda engine: _changed(engine, directory, end))
        return directory

    def list(self, chosen: Filter, max_stale: float | None) -> Flow[list[ListedInstance]]:
        directory = yield from self.ready()
        return self.core.do(lambda engine: self._fresh(directory, max_stale).list(chosen))

    def pick(self, chosen: Filter, max_stale: float | None, strategy: str | None, key: str | None) -> Flow[ListedInstance | None]:
        chosen_strategy = strategy or ("round-robin" if key is None else "hash")
        if chosen_strategy not in STRATEGIES:
            raise LeaseError("INVALID", f"there is no strategy {strategy}; there are {', '.join(STRATEGIES)}")
        if chosen_strategy == "hash" and key is None:
            raise LeaseError("INVALID", "the strategy hash needs a key")
        directory = yield from self.ready()
        return self.core.do(lambda engine: self._fresh(directory, max_stale).pick(chosen, chosen_strategy, key or ""))

    def _fresh(self, directory: Directory, max_stale: float | None) -> Directory:
        if self.core.engine.closed:
            raise closed_error()
        age = directory.age
        if max_stale is not None and age > max_stale:
            text = f"the list of services is {in_words(age)} old, and at most {in_words(max_stale)} is allowed"
            raise LeaseError("UNAVAILABLE", text, {"age": round(age * 1000), "maxStale": round(max_stale * 1000)})
        return directory


def _changed(engine: Any, directory: Directory, end: float) -> Future[None]:
    """Done when the directory was loaded, or failed, or when ``end`` is reached."""
    future: Future[None] = Future()

    def wake() -> None:
        if not future.done() and future.set_running_or_notify_cancel():
            future.set_result(None)

    if directory.loaded:
        wake()
    else:
        directory.begin()
        directory.waiting.append(wake)
        engine.timers.at(end, wake)
    return future
