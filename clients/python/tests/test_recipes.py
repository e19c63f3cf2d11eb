"""Election, session, registry, pool, decorator and fences, in virtual time."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leasehold_client import LeaseError, LeaseLost, fence
from leasehold_client._directory import ListedInstance, choose
from leasehold_client._flow import Flow
from leasehold_client._future import Future
from leasehold_client.election import Election
from leasehold_client.testing import World


def test_a_leader_that_loses_its_office_is_told_before_another_is_elected(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    terms = a.election("scheduler", ttl=10).terms()
    first = next(terms)
    assert first.leads and a.election("scheduler").leader() == ("a", first.token, first.lease.id)
    world.stop_answering()
    world.advance(10)
    assert first.ended.is_set() and not first.leads
    world.answer()
    world.advance(3)
    second = next(b.election("scheduler", ttl=10).terms())
    assert second.token > first.token
    with pytest.raises(LeaseLost):
        first.assert_leads()


def test_leaving_the_loop_leaves_the_office(world: World) -> None:
    a = world.connect("a")
    election = a.election("scheduler")
    for _ in election.terms():
        break
    assert a.election("scheduler").leader() is None and election.term is None


def test_a_leader_that_resigns_may_name_its_successor(world: World) -> None:
    a = world.connect("a")
    terms = a.election("scheduler").terms()
    term = next(terms)
    term.resign("b")
    assert term.ended.is_set() and term.lease.held  # the work ends first
    terms.close()  # type: ignore[attr-defined]
    leader = a.election("scheduler").leader()
    assert leader is not None and leader.holder == "b"


def test_a_candidacy_that_is_stopped_ends_its_loop(world: World) -> None:
    election = world.connect("a").election("scheduler")
    rounds = 0
    for _ in election.terms():
        rounds += 1
        if rounds == 3:
            election.stop()
    assert rounds == 3


def test_observers_see_every_leader(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    seen = a.election("scheduler").observe()
    assert next(seen) is None
    terms = b.election("scheduler").terms()
    term = next(terms)
    leader = next(seen)
    assert leader is not None and leader.token == term.token
    terms.close()  # type: ignore[attr-defined]
    assert next(seen) is None


def test_a_session_ends_without_activity_and_takes_everything_with_it(world: World) -> None:
    leases = world.connect()
    session = leases.session(ttl="20m")
    lease = session.acquire("documents/42", ttl=30)
    inner = session.begin(ttl="40m")
    session.put("presence/ann", "here")
    for _ in range(4):
        world.advance(600)
        session.touch()
    assert session.active and lease.held and leases.entries("presence")
    world.advance(1_500)
    assert not session.active and session.ended.is_set()
    assert lease.lost.is_set() and inner.ended.is_set()
    assert leases.entries("presence") == []
    with pytest.raises(LeaseError):
        session.acquire("k", parent=1)


def test_the_decorator_runs_the_function_under_the_lease(world: World) -> None:
    leases = world.connect()

    @leases.exclusive("report")
    def report(x: int) -> int:
        """Docs."""
        assert world.server.holder_of("report") == "test"
        return x + 1

    assert report(1) == 2 and report.__doc__ == "Docs."
    assert world.server.holder_of("report") is None


def test_an_instance_is_listed_while_it_lives(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    found = b.registry.discover(capability="plan")
    assert found.list() == [] and found.pick() is None
    me = a.registry.register("planner", address="http://10.0.0.7:8080", capabilities=["plan"], ttl=30)
    (listed,) = found.list()
    assert (listed.service, listed.instance, listed.address, listed.status) == ("planner", "a", "http://10.0.0.7:8080", "passing")
    me.update(load=3, status="warning")
    assert found.list()[0].load == 3 and found.list()[0].status == "warning"
    me.drain()
    assert found.pick() is None and len(found.list()) == 1
    world.advance(300)
    assert len(found.list()) == 1
    me.deregister()
    assert found.list() == [] and me.ended.is_set()


def test_a_registration_survives_an_outage_and_returns_after_a_lapse(world: World) -> None:
    events: list[str] = []
    a = world.connect("a")
    me = a.registry.register("planner", ttl=30, on_event=lambda event, reason: events.append(event))
    first = me.lease
    world.stop_answering()
    world.advance(40)
    world.answer()
    world.advance(5)
    assert me.lease == first and events == ["unreachable", "reached"]  # within its grace
    world.stop_answering()
    world.advance(120)
    world.answer()
    world.advance(30)
    second = me.lease
    assert second not in (0, first) and events[-2:] == ["lapsed", "registered"]
    world.advance(300)
    assert me.lease == second and len(a.registry.discover("planner").list()) == 1  # and it is renewed from then on


def test_a_name_belongs_to_its_holder(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    mine = a.registry.register("planner", instance="one")
    with pytest.raises(LeaseError) as caught:
        b.registry.register("planner", instance="one")
    assert caught.value.code == "HELD"
    mine.deregister()
    with b.registry.register("planner", instance="one", wait=5) as theirs:
        assert theirs.lease


def test_a_suspect_is_picked_only_when_there_is_no_other(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    a.registry.register("planner", ttl=10, grace=100)
    found = b.registry.discover("planner")
    assert found.pick() is not None
    world._owners[0].engine.tick = lambda: None  # type: ignore[method-assign]
    world._owners[0].engine.next_time = lambda connecting=False: None  # type: ignore[method-assign]
    world.advance(15)
    assert [each.status for each in found.list()] == ["suspect"]
    picked = found.pick()
    assert picked is not None and picked.status == "suspect"
    b.registry.register("planner", instance="other")
    assert {found.pick().instance for _ in range(5)} == {"other"}  # type: ignore[union-attr]


def test_a_discovery_knows_how_old_it_is(world: World) -> None:
    leases = world.connect()
    found = leases.registry.discover("planner", max_stale=20)
    found.list()
    world.advance(60)
    assert found.age <= 6
    world.stop_answering()
    world.advance(60)
    with pytest.raises(LeaseError) as caught:
        found.list()
    assert caught.value.code == "UNAVAILABLE" and caught.value.facts["maxStale"] == 20_000
    assert leases.registry.discover("planner").list() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "no port"},
        {"address": "user:pw@host:1"},
        {"weight": -1},
        {"metadata": {"__proto__": 1}},
        {"metadata": object()},
        {"x": 1},
    ],
)
def test_a_wrong_registration_is_refused(world: World, fields: dict[str, Any]) -> None:
    with pytest.raises(LeaseError) as caught:
        world.connect().registry.register("planner", **fields)
    assert caught.value.code == "INVALID"


def instances(*names: str, **more: Any) -> list[ListedInstance]:
    base = ListedInstance("s", "", "", (), "passing", "", 0, (), (), None, 1, "", 0, 1, "h")
    return [base._replace(instance=name, **more) for name in names]


def test_a_key_picks_the_same_instance_as_the_typescript_library() -> None:
    among = instances("a", "b", "c", "d")
    assert [choose(among, "hash", 0, f"user-{i}").instance for i in range(8)] == HASHED


#: From src/registry/pick.ts, for services named s and instances a to d.
HASHED = ["b", "d", "c", "b", "d", "a", "b", "c"]


def test_an_instance_that_goes_moves_only_its_own_keys() -> None:
    among = instances("a", "b", "c", "d")
    before = {f"k{i}": choose(among, "hash", 0, f"k{i}").instance for i in range(200)}
    after = {key: choose(among[1:], "hash", 0, key).instance for key in before}
    assert all(after[key] == owner for key, owner in before.items() if owner != "a")
    assert len(set(before.values())) == 4


def test_members_of_a_pool_are_taken_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    owner, a, b = world.connect("owner"), world.connect("a"), world.connect("b")
    offers = [owner.pool("gpu").offer(f"gpu-{i}", labels={"model": "A100"}) for i in range(3)]
    with a.pool("gpu", match={"model": "A100"}).take(2, expect="20m") as two:
        assert two.devices == ("0", "1") and os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert b.pool("gpu").try_take(2) is None
        with b.pool("gpu").take(variable=None) as third:
            assert third.devices == ("2",) and os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert b.pool("gpu").try_take(1, match={"model": "H100"}) is None
    with pytest.raises(LeaseError) as caught:
        b.pool("gpu").take(4, wait=30)
    assert caught.value.code == "TIMEOUT"
    offers[0].release()
    assert [member.member for member in b.pool("gpu").members()] == ["gpu-1", "gpu-2"]


def test_a_taker_knows_which_member_it_has(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    offers = [a.pool("gpu").offer(f"gpu-{i}") for i in range(3)]
    first = a.pool("gpu").take(variable=None)
    second = b.pool("gpu").take(variable=None)
    assert (first.devices, second.devices) == (("0",), ("1",))
    assert world.server.holder_of("gpu/gpu-1") == "b" and second.resources == ("gpu/gpu-1",)
    assert offers[0].held


def test_a_taker_waits_for_members_that_are_offered_later(world: World) -> None:
    owner, a = world.connect("owner"), world.connect("a")
    held: list[Any] = []
    world._owners[1].engine.timers.at(world.clock.read().monotonic + 5, lambda: held.append(owner.pool("gpu").offer("gpu-0")))
    with a.pool("gpu").take(wait=60) as gpu:
        assert gpu.resources == ("gpu/gpu-0",)


class FakeRedis:
    """redis-py, as far as the guard uses it."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> int:
        guard, key, token, value = keys_and_args
        if int(token) < int(self.data.get(guard, "0")):
            return 0
        self.data[guard], self.data[key] = token, value
        return 1


def test_guards_refuse_an_older_token() -> None:
    redis, memory = FakeRedis(), fence.MemoryGuard()
    guards: list[Any] = [memory.admit, lambda key, token: fence.set_fenced(redis, key, "v", token=token)]
    for admit in guards:
        admit("report", 5)
        admit("report", 5)
        admit("report", 9)
        with pytest.raises(LeaseError) as caught:
            admit("report", 8)
        assert caught.value.code == "STALE"
        with pytest.raises(LeaseError) as caught:
            admit("report", 0)
        assert caught.value.code == "INVALID"


def test_the_server_is_a_fence_too(world: World) -> None:
    leases = world.connect()
    assert leases.fence("report", 5) == 5
    with pytest.raises(LeaseError) as caught:
        leases.fence("report", 4)
    assert caught.value.code == "STALE"


def begin(election: Election) -> None:
    """A candidacy that waits, without a thread that waits for it."""
    candidacy = election._candidacy
    candidacy.core.do(lambda engine: engine.acquire(candidacy._request))


def test_a_leader_that_yields_resigns_for_a_candidate_of_higher_priority(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    other = a.election("other", ttl=10).terms()
    stays = next(other)
    yields = a.election("scheduler", ttl=10, yields=True).terms()
    term = next(yields)
    waiting = [b.election(name, ttl=10, priority=1) for name in ("other", "scheduler")]
    for election in waiting:
        begin(election)
    world.advance(1)
    assert term.ended.is_set() and term.lease.held  # the work ends first
    assert not stays.ended.is_set()


def test_work_that_does_not_end_within_its_budget_loses_the_office(world: World) -> None:
    a = world.connect("a")
    terms = a.election("scheduler", ttl=10, budget=3).terms()
    term = next(terms)
    term.resign()
    world.advance(2.9)
    assert term.lease.held
    world.advance(0.2)
    assert not term.lease.held and world.server.holder_of("election/scheduler") is None


def test_several_instances_share_one_lease(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    both = a.registry.register_all([{"service": "web", "address": "http://a"}, {"service": "metrics", "address": "http://b", "load": 2}])
    found = b.registry.discover().list()
    assert sorted((each.service, each.address, each.load) for each in found) == [("metrics", "http://b", 2), ("web", "http://a", 0)]
    both.update(service="web", status="warning")
    assert {each.service: each.status for each in b.registry.discover().list()} == {"web": "warning", "metrics": "passing"}
    world.advance(100)
    assert len(b.registry.discover().list()) == 2
    both.deregister()
    assert b.registry.discover().list() == []
    with pytest.raises(LeaseError, match="named twice"):
        a.registry.register_all([{"service": "web"}, {"service": "web"}])
    with pytest.raises(LeaseError, match="no instance is named"):
        a.registry.register_all([])


def test_a_taker_of_whole_members_is_alone_on_each_whatever_their_units(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    pool = a.pool("gpu")
    offers = [pool.offer("gpu-0"), pool.offer("gpu-1", units=4)]
    with pool.take(2) as both:
        assert set(both.resources) == {"gpu/gpu-0", "gpu/gpu-1"}
        assert b.pool("gpu").try_take(units=1) is None
    with b.pool("gpu").take(1, units=3) as part:
        assert part.resources == ("gpu/gpu-1",)
        assert b.pool("gpu").try_take(units=2) is None
    for offer in offers:
        offer.release()


def start(flow: Flow[Any], results: list[Any]) -> None:
    """Runs a flow as its futures are done, without a thread that waits."""

    def step(done: Future[Any] | None) -> None:
        try:
            awaited = next(flow) if done is None else flow.send(done.result())
        except StopIteration as stop:
            results.append(stop.value)
        else:
            future = awaited if isinstance(awaited, Future) else awaited.owner.do(awaited.begin)
            future.add_done_callback(step)

    step(None)


def test_a_member_that_is_offered_while_a_taker_waits_counts_from_then_on(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    pool = a.pool("gpu", match={"model": "x"})
    offers = [pool.offer("gpu-0", labels={"model": "x"})]
    first = pool.take(1)
    waiting = b.pool("gpu", match={"model": "x"})._pool
    taken: list[Any] = []
    start(waiting.take(1, None, {"wait": 600}, True), taken)
    world.advance(1)
    offers.append(pool.offer("gpu-1", labels={"model": "y"}))
    world.advance(5)
    assert taken == []
    offers.append(pool.offer("gpu-2", labels={"model": "x"}, units=2))
    world.advance(5)
    ((held, members),) = taken
    assert held.resources == ("gpu/gpu-2",) and [member.member for member in members] == ["gpu-2"]
    assert first.held and a.pool("gpu").try_take(match={"model": "x"}) is None


def renewals(world: World) -> int:
    return sum(words[0] == "LEASE.RENEW" for words in world.server.commands)


def test_a_registration_is_renewed_every_third_of_its_ttl_or_as_often_as_it_says(world: World) -> None:
    leases = world.connect()
    with leases.registry.register("planner", address="http://10.0.0.7:8080", ttl=30):
        world.advance(8.9)
        assert renewals(world) == 0
        world.advance(1.2)
        assert renewals(world) == 1
    before = renewals(world)
    with leases.registry.register("planner", address="http://10.0.0.7:8080", ttl=30, heartbeat="2s"):
        world.advance(10)
        assert renewals(world) - before in (5, 6)
    for heartbeat in (0, 16, "x"):
        with pytest.raises(LeaseError) as caught:
            leases.registry.register("planner", address="http://10.0.0.7:8080", ttl=30, heartbeat=heartbeat)
        assert caught.value.code == "INVALID"
