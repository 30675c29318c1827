"""The catalog: a pure state machine behind a compare-and-append, against a model and between processes."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.commands.deployments import bootstrap
from mzsql.catalog.commands.items import allocate, create_item, drop_items
from mzsql.catalog.durable import DurableCatalog, decode, encode
from mzsql.catalog.durable_map import HELD_STEPS, DurableMap
from mzsql.catalog.objects import (
    Index,
    Item,
    Lease,
    MaterializedView,
    Meta,
    Object,
    Standby,
    Table,
    View,
)
from mzsql.catalog.state import CatalogState, applied
from mzsql.location import Determinate, Versioned, open_blob, open_consensus
from mzsql.location.mem import MemConsensus
from mzsql.persist import PersistClient, Settings, background_work
from mzsql.persist.shard_maintenance import Report
from mzsql.repr.errors import DependentObjects, DuplicateObject, UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, ColumnType, RelationDesc, RelationType

SHARD = "s00000000-0000-4000-8000-000000000001"
DESC = RelationDesc(("a",), RelationType((ColumnType(INTEGER),)))
META = Meta("env", 1, "wal", "cache", 0)


def item(number: int, name: str, kind: type[Object] = Table, *, on: tuple[int, ...] = ()) -> Item:
    gid, depends = GlobalId(f"u{number}"), tuple(GlobalId(f"u{n}") for n in on)
    common = (gid, name, "public", f"CREATE {name}", depends)
    if kind is Index:
        return Index(*common, on_id=depends[0], cluster="quickstart")
    if kind is MaterializedView:
        return MaterializedView(*common, desc=DESC, shard=f"s{number}", cluster="quickstart")
    if kind is View:
        return View(*common, desc=DESC)
    return Table(*common, desc=DESC, shard=f"s{number}")


def fresh() -> tuple[CatalogState, dict[str, bytes]]:
    entries: dict[str, bytes] = {}
    return step(entries, bootstrap(decode(entries), META, size="2", workers=2)), entries


def step(entries: dict[str, bytes], change: Change) -> CatalogState:
    """The state that the entries spell after a change; it is the same that `applied` makes of the one before."""
    before = decode(entries)
    for key, value in encode(change).items():
        if value is None:
            del entries[key]
        else:
            entries[key] = value
    assert decode(entries) == applied(before, change)
    return decode(entries)


def test_bootstrap_makes_the_default_cluster_once() -> None:
    state, entries = fresh()
    assert [c.name for c in state.clusters.values()] == ["quickstart"]
    assert [(r.name, r.workers) for r in state.replicas.values()] == [("r1", 2)]
    assert bootstrap(state, META, size="4", workers=4) == NOTHING
    assert msgspec.json.decode(entries["meta/environment"])["format_version"] == 1


def test_names_are_taken_by_any_kind_of_object() -> None:
    state, entries = fresh()
    state = step(entries, create_item(state, item(1, "t")))
    with pytest.raises(DuplicateObject, match=r'table "materialize\.public\.t" already exists'):
        create_item(state, item(2, "t", View))


def test_what_an_object_depends_on_must_still_be_there() -> None:
    state, _ = fresh()
    with pytest.raises(UndefinedTable):
        create_item(state, item(2, "v", View, on=(1,)))


def test_drop_refuses_while_others_depend_and_cascades_when_told() -> None:
    state, entries = fresh()
    for one in (
        item(1, "t"),
        item(2, "v", View, on=(1,)),
        item(3, "m", MaterializedView, on=(2,)),
    ):
        state = step(entries, create_item(state, one))
    state = step(entries, create_item(state, item(4, "i", Index, on=(3,))))
    with pytest.raises(
        DependentObjects, match='cannot drop table "t": still depended upon by view "v"'
    ):
        drop_items(state, [GlobalId("u1")], cascade=False)
    # An index never keeps what it is on from being dropped.
    gone = drop_items(state, [GlobalId("u3")], cascade=False)
    assert gone == Change(items={GlobalId("u3"): None, GlobalId("u4"): None})
    assert len(drop_items(state, [GlobalId("u1")], cascade=True).items) == 4


def test_ids_are_never_used_twice() -> None:
    state, entries = fresh()
    first, change = allocate(state, "user", 3)
    state = step(entries, change)
    second, _ = allocate(state, "user")
    assert (first, second) == (1, 4)


class Machine(RuleBasedStateMachine):
    """Random DDL of two processes against a dict of names."""

    @initialize()
    def start(self) -> None:
        self.blob, self.consensus = open_blob("mem:"), open_consensus("mem:")
        self.catalogs = [self.open(), self.open()]
        self.catalogs[0].transact(lambda s: (bootstrap(s, META, size="2", workers=2), None))
        self.model: dict[str, tuple[str, str | None]] = {}
        self.used: set[str] = set()

    def open(self) -> DurableCatalog:
        return DurableCatalog(PersistClient(self.blob, self.consensus, background=False), SHARD)

    def create(self, who: int, name: str, below: str | None) -> Item:
        catalog = self.catalogs[who]

        def command(state: CatalogState) -> tuple[Change, Item]:
            number, change = allocate(state, "user")
            depends = ()
            if below is not None:
                found = state.by_name("public", below)
                if found is None:
                    raise UndefinedTable(below)
                depends = (int(found.id[1:]),)
            made = item(number, name, View if depends else Table, on=depends)
            return change | create_item(state, made), made

        return catalog.transact(command)

    @rule(
        who=st.integers(0, 1),
        name=st.sampled_from("abcd"),
        below=st.none() | st.sampled_from("abcd"),
    )
    def create_one(self, who: int, name: str, below: str | None) -> None:
        if name in self.model:
            with pytest.raises((DuplicateObject, UndefinedTable)):
                self.create(who, name, below)
        elif below is not None and below not in self.model:
            with pytest.raises(UndefinedTable):
                self.create(who, name, below)
        else:
            made = self.create(who, name, below)
            assert made.id not in self.used
            self.used.add(made.id)
            self.model[name] = (made.id, below)

    @rule(who=st.integers(0, 1), name=st.sampled_from("abcd"), cascade=st.booleans())
    def drop(self, who: int, name: str, cascade: bool) -> None:
        if name not in self.model:
            return
        gid = GlobalId(self.model[name][0])
        doomed = {name}
        while more := {n for n, (_, b) in self.model.items() if b in doomed} - doomed:
            doomed |= more

        def command(state: CatalogState) -> tuple[Change, None]:
            return drop_items(state, [gid], cascade=cascade), None

        if len(doomed) > 1 and not cascade:
            with pytest.raises(DependentObjects):
                self.catalogs[who].transact(command)
            return
        self.catalogs[who].transact(command)
        for gone in doomed:
            del self.model[gone]

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.catalogs[who] = self.open()

    @invariant()
    def every_process_sees_the_model(self) -> None:
        for catalog in getattr(self, "catalogs", ()):
            state = catalog.sync()
            assert {i.name: i.id for i in state.items.values()} == {
                name: gid for name, (gid, _) in self.model.items()
            }


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)


def test_a_map_loses_no_increment_of_concurrent_processes() -> None:
    blob, consensus = open_blob("mem:"), open_consensus("mem:")
    shard = PersistClient(blob, consensus, background=False).new_shard_id()

    def count() -> None:
        mine = DurableMap(PersistClient(blob, consensus, background=False), shard, "counter")
        for _ in range(20):
            mine.apply(lambda e: {"n": str(int(e.get("n", b"0")) + 1).encode()})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = DurableMap(PersistClient(blob, consensus, background=False), shard, "counter")
    assert final.entries() == {"n": b"80"}


def test_a_map_tells_of_what_upkeep_has_met_first() -> None:
    """A change of this process to the shard takes another's step in without reading it: no wait may sleep over that."""
    blob, consensus = open_blob("mem:"), open_consensus("mem:")
    client = PersistClient(blob, consensus, background=False)
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    other = DurableMap(PersistClient(blob, consensus, background=False), shard, "map")
    assert not mine.sync()
    assert mine.await_change(0.0) is False
    other.apply(lambda _: {"a": b"1"})
    # loses the race to the other's step, and is then based on it
    client.open_reader(shard, purpose="upkeep").expire()
    assert mine.entries() == {}
    assert mine.await_change(0.0) is True
    assert mine.sync()
    assert mine.await_change(0.0) is False
    mine.apply(lambda _: {"b": b"2"})
    assert mine.await_change(0.0) is False


class Refusing(MemConsensus):
    """Takes so many changes more, and then refuses all."""

    allowed = 1 << 30

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        if self.allowed == 0:
            raise Determinate("the store refuses changes")
        self.allowed -= 1
        return super().compare_and_set(key, expected, new)


def test_a_change_counts_though_history_could_not_be_released(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blob, consensus = open_blob("mem:"), Refusing()
    brief = Settings(timeout=0.5)
    client = PersistClient(blob, consensus, background=False, settings=brief)
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    other = DurableMap(PersistClient(blob, consensus, background=False), shard, "map")
    for n in range(HELD_STEPS - 1):
        mine.apply(lambda _, n=n: {"n": str(n).encode()})
    consensus.allowed = 1
    # the change is taken, what comes after it is not
    assert mine.apply(lambda _: {"n": b"last"}) == HELD_STEPS - 1
    assert consensus.allowed == 0
    assert mine.entries() == {"n": b"last"}
    assert "the map keeps history a little longer" in caplog.text
    consensus.allowed = 1 << 30
    assert other.sync()
    assert other.entries() == {"n": b"last"}
    # and where it is read, not made
    for n in range(HELD_STEPS):
        other.apply(lambda _, n=n: {"m": str(n).encode()})
    consensus.allowed = 0
    assert mine.sync()
    assert mine.entries() == other.entries()


@pytest.mark.parametrize("maintenance", ["in process", "elsewhere"])
def test_a_map_of_which_most_was_replaced_is_stored_once(maintenance: str) -> None:
    settings = Settings(maintenance=maintenance, inline_bytes=0)
    client = PersistClient(
        open_blob("mem:"), open_consensus("mem:"), background=False, settings=settings
    )
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    mine.apply(lambda _: {str(n): b"one" for n in range(1000)})
    mine.apply(lambda _: {"0": b"two"})
    assert len(client.inspect(shard).trace) == 2
    mine.apply(lambda _: {str(n): b"three" for n in range(1000)})
    stored = sum(batch.rows for batch in client.inspect(shard).trace)
    assert stored == (1000 if maintenance == "in process" else 3002)
    assert DurableMap(client, shard, "map").entries() == mine.entries()
    # What an earlier process left is merged by the next one that changes something, as far as others have let go of it.
    later = DurableMap(PersistClient(client.blob, client.consensus, background=False), shard, "map")
    later.apply(lambda _: {"0": b"four"})
    if maintenance == "elsewhere":
        assert sum(batch.rows for batch in client.inspect(shard).trace) == 1002


def test_nobody_waits_for_a_map_to_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go, maintain = threading.Event(), threading.Event(), background_work.maintain

    def slow(*args: object, **options: object) -> Report:
        began.set()
        assert go.wait(60)
        return maintain(*args, **options)

    monkeypatch.setattr(background_work, "maintain", slow)
    settings = Settings(inline_bytes=0)
    client = PersistClient(open_blob("mem:"), open_consensus("mem:"), settings=settings)
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    try:
        for value in (b"one", b"two"):
            mine.apply(lambda _, value=value: {str(n): value for n in range(1000)})
        assert began.wait(60)
        mine.apply(lambda _: {"0": b"three"})
        assert (mine.get("0"), mine.get("1")) == (b"three", b"two")
    finally:
        go.set()
    end = time.monotonic() + 60
    while sum(batch.rows for batch in client.inspect(shard).trace) > 1002:
        assert time.monotonic() < end, "it was not merged"
        time.sleep(0.01)
    assert DurableMap(client, shard, "map").entries() == mine.entries()
    client.close()


def test_a_map_that_is_closed_at_once_is_merged_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = PersistClient(
        open_blob("mem:"), open_consensus("mem:"), settings=Settings(inline_bytes=0)
    )
    # The thread has no time for it.
    monkeypatch.setattr(background_work, "maintain", lambda *_, **__: Report())
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    for value in (b"one", b"two"):
        mine.apply(lambda _, value=value: {str(n): value for n in range(1000)})
    mine.close()
    assert sum(batch.rows for batch in client.inspect(shard).trace) == 1000
    client.close()


def test_a_map_that_was_merged_beside_is_not_merged_again_when_closed() -> None:
    client = PersistClient(
        open_blob("mem:"), open_consensus("mem:"), settings=Settings(inline_bytes=0)
    )
    shard = client.new_shard_id()
    mine = DurableMap(client, shard, "map")
    for value in (b"one", b"two"):
        mine.apply(lambda _, value=value: {str(n): value for n in range(1000)})
    end = time.monotonic() + 60
    while sum(batch.rows for batch in client.inspect(shard).trace) > 1000:
        assert time.monotonic() < end, "it was not merged"
        time.sleep(0.01)
    # What has come since is no reason to write all of it anew.
    mine.apply(lambda _: {"0": b"three"})
    before = {part for batch in client.inspect(shard).trace for part in batch.parts}
    assert before
    mine.close()
    assert {part for batch in client.inspect(shard).trace for part in batch.parts} == before
    client.close()


def test_a_map_whose_reader_has_expired_is_opened_anew() -> None:
    client = PersistClient(open_blob("mem:"), open_consensus("mem:"), background=False)
    mine = DurableMap(client, client.new_shard_id(), "map")
    mine._reader.expire()  # as a lease that ran out in a long sleep
    for n in range(HELD_STEPS):
        mine.apply(lambda _, n=n: {"n": str(n).encode()})
    assert mine.sync()
    assert mine.entries() == {"n": str(HELD_STEPS - 1).encode()}
    assert not mine.sync()


def test_what_no_plan_depends_on_is_no_change_of_definitions() -> None:
    """So that plans outlive the renewals of a lease, and hydrations, which note their arrangements."""
    persist = PersistClient(open_blob("mem:"), open_consensus("mem:"), background=False)
    one, other = DurableCatalog(persist, SHARD), DurableCatalog(persist, SHARD)

    def put(change: Change) -> None:
        one.transact(lambda _: (change, None))

    u1, u2 = GlobalId("u1"), GlobalId("u2")
    put(Change(items={u1: item(1, "t")}))
    made = one.definitions
    for n in range(5):
        put(Change(lease=Lease("a", n, 0, "me")))
        put(Change(standbys={"b": Standby("other", n)}))
        put(Change(arrangements={f"r/{n}": f"s{n}"}))
        put(Change(managed={f"m{n}": f"s{n}"}, counters={"user": n + 1}))
        assert one.definitions == made
    assert one.state.lease == Lease("a", 4, 0, "me")
    assert len(one.state.arrangements) == 5
    for change in (
        Change(items={u2: item(2, "s")}),
        Change(items={u2: item(2, "renamed")}),
        Change(settings={"x": "on"}),
    ):
        other.sync()
        mine, theirs = one.definitions, other.definitions
        put(change)
        assert one.definitions > mine
        assert other.definitions == theirs
        assert other.sync() == one.state == decode(one.entries())
        assert other.definitions > theirs
    before = one.definitions
    put(Change(items={u2: None}, standbys={"b": None}))
    assert one.definitions > before
    assert list(one.state.items) == ["u1"]
    assert not one.state.standbys
