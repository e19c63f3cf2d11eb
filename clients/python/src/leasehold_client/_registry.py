"""The registry, without regard to how its user waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._core import Core
from ._directory import STRATEGIES, Directory, Filter, ListedInstance
from ._duration import Duration, in_words, seconds
from ._entry import Instance, InstanceState, instance_of, state_of
from ._errors import LeaseError, closed_error
from ._flow import Flow
from ._future import Future
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
        described: Sequence[Mapping[str, Any]],
        ttl: Duration,
        grace: Duration | None,
        wait: Duration,
        on_event: Callable[[str, LeaseError | None], None] | None,
        heartbeat: Duration | None = None,
    ) -> Flow[Registered]:
        term = seconds(ttl, "ttl")
        interval = None if heartbeat is None else seconds(heartbeat, "heartbeat")
        if interval is not None and not 0 < interval <= term / 2:
            text = f"heartbeat must be above 0 and at most half of the ttl of {in_words(term)}, which is {in_words(term / 2)}"
            raise LeaseError("INVALID", text, {"option": "heartbeat"})
        made = [self._instance(fields) for fields in described]
        if not made:
            raise LeaseError("INVALID", "no instance is named: write register_all([{'service': 'planner', 'address': …}, …])")
        if len({instance.key for instance, _ in made}) < len(made):
            raise LeaseError("INVALID", "an instance is named twice: each service and instance may be registered once")
        registered = Registered(self.core.engine, made, term, term / 2 if grace is None else seconds(grace, "grace"), interval)
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

    def _instance(self, described: Mapping[str, Any]) -> tuple[Instance, InstanceState]:
        fields = {name: value for name, value in described.items() if value is not None}
        if "service" not in fields:
            raise LeaseError("INVALID", "an instance needs a service", {"option": "service"})
        name = fields.pop("instance", None) or self.core.engine.options.holder.replace("/", "-")
        state = state_of(InstanceState(), fields.pop("status", None), fields.pop("load", None))
        return instance_of(fields.pop("service"), name, fields), state

    def update(
        self, registered: Registered, service: str | None, status: str | None, load: float | None, fields: Mapping[str, Any]
    ) -> Flow[None]:
        """Changes all instances of the registration, or those of one service."""
        if registered.reason is not None:
            raise registered.reason

        def changed(made: Instance, state: InstanceState) -> tuple[Instance, InstanceState]:
            if service is not None and made.service != service:
                return made, state
            if fields:
                given = {name: value for name, value in made._asdict().items() if name not in ("service", "instance")}
                if "address" in fields:
                    del given["addresses"]
                made = instance_of(made.service, made.instance, {**given, **fields})
            return made, state_of(state, status, load)

        instances = [changed(*each) for each in registered.instances]
        yield self.core.do(lambda engine: registered.update(instances))

    def deregister(self, registered: Registered, drain: float) -> Flow[None]:
        if drain > 0 and registered.lease != 0:
            try:
                yield from self.update(registered, None, "draining", None, {})
                yield self.core.sleep(drain)
            except LeaseError:
                pass  # the server does not answer: leave all the same
        reason = LeaseError("GONE", f"{registered.name} was deregistered")
        yield self.core.do(lambda engine: registered.end(reason))

    def _deregister_all(self) -> list[Future[None]]:
        return [each.end(LeaseError("GONE", f"{each.name} was deregistered")) for each in self._registrar.all()]

    def services(self) -> Flow[list[dict[str, Any]]]:
        found: list[dict[str, Any]] = yield self.core.read("LEASE.SERVICES")
        return found

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
        future.set_result(None)

    if directory.loaded:
        wake()
    else:
        directory.begin()
        directory.waiting.append(wake)
        engine.timers.at(end, wake)
    return future
