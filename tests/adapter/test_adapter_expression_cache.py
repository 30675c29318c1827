"""The expression cache: reconciliation at open, invalidation, two processes, round trips of plans."""

from __future__ import annotations

import msgspec
import pytest

from mzsql.adapter.environment.cache_entries import GlobalExpressions, LocalExpression
from mzsql.adapter.environment.expression_cache import (
    ExpressionCache,
    OneShard,
    dependents_of_index,
)
from mzsql.catalog import durable_map
from mzsql.catalog.commands.items import create_item
from mzsql.catalog.durable_map import DurableMap
from mzsql.catalog.objects import Item, MaterializedView, Schema, Table, View
from mzsql.catalog.state import CatalogState
from mzsql.expr.dataflow import MaterializedViewExport, MirDataflow, MirObject, MirSource
from mzsql.expr.relation import Filter, Get, Reduce, TopK
from mzsql.expr.scalar import AggregateExpr, Call, Column, ColumnOrder, Literal
from mzsql.lir.plan import BuildDesc, Constant, DataflowDescription
from mzsql.location import open_blob, open_consensus
from mzsql.persist import PersistClient
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, ColumnType, RelationDesc, RelationType

SHARD = "s00000000-0000-4000-8000-0000000000ca"
TYP = RelationType((ColumnType(INTEGER), ColumnType(INTEGER, nullable=False)), ((1,),))
DESC = RelationDesc(("a", "b"), TYP)


def u(n: int) -> GlobalId:
    return GlobalId(f"u{n}")


def relation(n: int) -> TopK:
    get = Get(u(1), TYP)
    keep = Filter(get, (Call("gt_integer", (Column(0), Literal(n, INTEGER)), BOOLEAN),))
    total = AggregateExpr("sum_integer", Column(1), True, BIGINT)
    return TopK(Reduce(keep, (Column(0),), (total,)), (0,), (ColumnOrder(1, desc=True),), None)


def plan(n: int, *, indexes: tuple[GlobalId, ...] = (), version: int = 1) -> GlobalExpressions:
    export = MaterializedViewExport(u(n))
    mir = MirDataflow((MirSource(u(1), TYP),), (), (MirObject(u(n), relation(n), TYP),), export)
    lir = Constant(0, (((1, 2), 1), ((None, 3), 2)), None, TYP.columns)
    desc = DataflowDescription((), (), (BuildDesc(u(n), lir, TYP),), export)
    return GlobalExpressions(mir, desc, indexes, "f", version)


class World:
    def __init__(self) -> None:
        self.blob, self.consensus = open_blob("mem:"), open_consensus("mem:")

    def cache(self, build: str = "1") -> ExpressionCache:
        client = PersistClient(self.blob, self.consensus, background=False)
        return ExpressionCache(client, SHARD, build)


@pytest.fixture
def world() -> World:
    return World()


def test_an_empty_cache_opens_empty(world: World) -> None:
    assert world.cache().open({}, remove_prior_versions=True) == {}


def test_plans_come_back_equal_after_a_restart(world: World) -> None:
    cache = world.cache()
    cache.insert_expressions(
        {u(3): LocalExpression(relation(3), "f")}, {u(2): plan(2), u(4): plan(4)}
    )
    again = world.cache()
    assert again.open({u(2): 1, u(3): 1, u(4): 1}, remove_prior_versions=True) == {
        u(2): plan(2),
        u(4): plan(4),
    }
    assert again.local(u(3), "f", 1) == relation(3)
    assert again.plan(u(2), "f", 1) == plan(2)
    assert (again.counts.hits, again.counts.misses) == (1, 0)


def test_a_dropped_object_is_gone_for_good(world: World) -> None:
    world.cache().insert_expressions(new_global={u(2): plan(2), u(3): plan(3)})
    assert set(world.cache().open({u(3): 1}, remove_prior_versions=False)) == {u(3)}
    assert set(world.cache().open({u(2): 1, u(3): 1}, remove_prior_versions=False)) == {u(3)}


def test_a_dropped_index_takes_plans_that_import_it_but_not_local_expressions(world: World) -> None:
    world.cache().insert_expressions(
        {u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2, indexes=(u(9),)), u(3): plan(3)}
    )
    cache = world.cache()
    assert set(cache.open({u(2): 1, u(3): 1}, remove_prior_versions=True)) == {u(3)}
    assert cache.local(u(2), "f", 1) == relation(2)


def test_a_new_version_of_an_object_has_no_plan(world: World) -> None:
    world.cache().insert_expressions({u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2)})
    cache = world.cache()
    assert cache.open({u(2): 2}, remove_prior_versions=True) == {}
    assert cache.local(u(2), "f", 2) is None
    assert world.cache().open({u(2): 1}, remove_prior_versions=True) == {}


def test_other_features_are_a_miss(world: World) -> None:
    cache = world.cache()
    cache.insert_expressions({u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2)})
    assert cache.plan(u(2), "g", 1) is None
    assert cache.local(u(2), "g", 1) is None
    assert cache.counts.misses == 1


def test_builds_do_not_see_each_other_until_the_new_one_removes_the_old(world: World) -> None:
    world.cache("1").insert_expressions(new_global={u(2): plan(2)})
    new = world.cache("2")
    assert new.open({u(2): 1}, remove_prior_versions=False) == {}
    assert set(world.cache("1").open({u(2): 1}, remove_prior_versions=False)) == {u(2)}
    new.insert_expressions(new_global={u(2): plan(2)})
    new.open({u(2): 1}, remove_prior_versions=True)
    assert world.cache("1").open({u(2): 1}, remove_prior_versions=False) == {}
    assert set(world.cache("2").open({u(2): 1}, remove_prior_versions=False)) == {u(2)}


def test_an_id_that_is_invalidated_and_inserted_ends_with_the_new_value(world: World) -> None:
    cache = world.cache()
    cache.insert_expressions({u(2): LocalExpression(relation(7), "f")}, {u(2): plan(2)})
    cache.insert_expressions(None, {u(2): plan(2, version=5)}, invalidate_ids=[u(2), u(99)])
    assert cache.plan(u(2), "f", 5) == plan(2, version=5)
    assert cache.local(u(2), "f", 1) is None


def test_processes_of_one_build_read_each_others_changes(world: World) -> None:
    one, two = world.cache(), world.cache()
    one.insert_expressions(new_global={u(2): plan(2)})
    two.insert_expressions(new_global={u(3): plan(3)})
    two.insert_expressions(invalidate_ids=[u(2)])
    one.sync()
    assert one.plan(u(2), "f", 1) is None
    assert one.plan(u(3), "f", 1) == plan(3)


def test_bytes_that_are_no_plan_are_as_if_they_were_not_there(world: World) -> None:
    client = PersistClient(world.blob, world.consensus, background=False)
    DurableMap(client, SHARD, "").apply(lambda _: {"1/u2/global": b"\xc1 junk"})
    cache = world.cache()
    assert cache.plan(u(2), "f", 1) is None
    assert cache.open({u(2): 1}, remove_prior_versions=True) == {}


def test_live_lock_of_two_leaders_that_write_in_turns(world: World) -> None:
    """A starts and leads, B starts and leads, A writes, B …: neither gives up, whoever is fenced in the end; both have all entries."""
    leaders = [world.cache(), world.cache()]
    for number in range(2, 12):
        leaders[number % 2].insert_expressions(new_global={u(number): plan(number)})
    for leader in leaders:
        leader.sync()
        for number in range(2, 12):
            assert leader.plan(u(number), "f", 1) == plan(number)


def test_a_write_is_tried_again_for_as_long_as_the_others_get_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_map, "MOST_CONFLICTS", 5)
    one, other = world.cache(), world.cache()
    other.insert_expressions(new_global={u(2): plan(2)})
    lost = 0

    def faster(self: DurableMap) -> bool:
        nonlocal lost
        found = synced(self)
        if lost < 20:
            lost += 1
            with monkeypatch.context() as patched:
                patched.setattr(DurableMap, "sync", synced)
                other.insert_expressions(new_global={u(2): plan(2, version=lost)})
        return found

    one.sync()
    other.insert_expressions(new_global={u(2): plan(2, version=100)})
    synced = DurableMap.sync
    monkeypatch.setattr(DurableMap, "sync", faster)
    one.insert_expressions(new_global={u(3): plan(3)})
    assert lost == 20
    other.sync()
    assert other.plan(u(3), "f", 1) == plan(3)
    assert one.plan(u(2), "f", 20) == plan(2, version=20)


def test_what_depends_on_a_dropped_index_is_invalidated_and_goes_on_running(world: World) -> None:
    cache = world.cache()
    over = plan(2, indexes=(u(9),))
    local = {u(2): LocalExpression(relation(2), "f")}
    cache.insert_expressions(local, {u(2): over, u(3): plan(3), u(9): plan(9)})
    assert cache.invalidate_entries({u(9)}) == {u(2): over}
    assert cache.plan(u(2), "f", 1) is None
    assert cache.local(u(2), "f", 1) == relation(2)
    assert cache.plan(u(9), "f", 1) is None
    assert cache.plan(u(3), "f", 1) == plan(3)
    other = world.cache()
    assert [one.peek(u(2)) for one in (cache, other)] == [over, over]
    cache.insert_expressions(new_global={u(2): plan(2)}, running={u(2)})
    assert cache.peek(u(2)) == plan(2)


def test_entries_of_other_features_go_at_open_but_for_what_runs(world: World) -> None:
    world.cache().insert_expressions(
        {u(3): LocalExpression(relation(3), "f")}, {u(2): plan(2), u(4): plan(4)}
    )
    ids = {u(2): 1, u(3): 1, u(4): 1}
    cache = world.cache()
    assert cache.open(ids, "g", remove_prior_versions=True) == {}
    assert cache.local(u(3), "f", 1) is None
    assert cache.peek(u(2)) == plan(2)
    assert world.cache().open(ids, "f", remove_prior_versions=True) == {}


def test_an_entry_whose_plan_is_cut_off_is_told_of_and_made_again(world: World) -> None:
    class Told(OneShard):
        def damaged_entry(self, key: str, reason: str) -> None:
            told[key] = reason

    told: dict[str, str] = {}
    made = plan(2)
    wrong = made.replaced(plan=msgspec.Raw(msgspec.msgpack.encode({"not": "a plan"})))
    world.cache().insert_expressions(new_global={u(2): wrong, u(3): plan(3)})
    client = PersistClient(world.blob, world.consensus, background=False)
    cache = ExpressionCache(client, Told(SHARD), "1")
    assert cache.plan(u(2), "f", 1) is None
    assert list(told) == ["1/u2/global"]
    assert cache.plan(u(3), "f", 1) == plan(3)
    cache.insert_expressions(new_global={u(2): made})
    assert cache.plan(u(2), "f", 1) == made


class _Told(OneShard):
    """Remembers the entries that could not be read."""

    def __init__(self) -> None:
        super().__init__(SHARD)
        self.entries: list[str] = []

    def damaged_entry(self, key: str, reason: str) -> None:
        del reason
        self.entries.append(key)


def _former(made: GlobalExpressions) -> bytes:
    """A plan's entry in the format before the present one: everything in one array, without the header's copies."""
    encoded = [msgspec.Raw(msgspec.msgpack.encode(one)) for one in (made.mir, None)]
    head = (made.features, made.version, made.index_imports, made.offered, made.notices)
    return msgspec.msgpack.encode((*head, encoded[0], made.sealed, encoded[1], 0))


def test_a_plan_in_the_former_format_is_made_again_and_is_no_damage(world: World) -> None:
    kept, made = plan(3), plan(2)
    world.cache().insert_expressions(new_global={u(3): kept})
    entries = DurableMap(PersistClient(world.blob, world.consensus, background=False), SHARD, "x")
    entries.apply(lambda _: {"1/u2/global": _former(made)})
    told = _Told()
    client = PersistClient(world.blob, world.consensus, background=False)
    cache = ExpressionCache(client, told, "1")
    assert cache.plan(u(2), "f", 1) is None
    assert cache.glances([u(2), u(3)]) == {u(3): kept}
    cache.insert_expressions(new_global={u(2): made})
    assert cache.plan(u(2), "f", 1) == made
    assert world.cache().open({u(2): 1, u(3): 1}, "f", remove_prior_versions=True) == {
        u(2): made,
        u(3): kept,
    }
    assert told.entries == []


def test_what_relations_show_of_a_plan_is_in_its_header() -> None:
    made = plan(2, indexes=(u(9),))
    read = GlobalExpressions.read(made.to_bytes())
    sealed = made.sealed
    assert read.reads == (*sealed.sources, *sealed.indexes)
    assert read.sealed == sealed
    assert (read.is_outlined, read.arrangements, read.lir_ids) == (False, None, made.lir_ids)
    assert read == made
    # Another length of a part is damage, though the bytes are those that were written.
    for moved in (made.replaced(mir_bytes=1), made.replaced(plan_bytes=1)):
        with pytest.raises(msgspec.MsgspecError):
            moved.check()


def test_an_index_invalidates_dependents_through_plain_views_only() -> None:
    def item(n: int, kind: str, *on: int) -> Item:
        common = (u(n), f"o{n}", "public", "", tuple(u(i) for i in on))
        if kind == "table":
            return Table(*common, desc=DESC, shard="s")
        if kind == "view":
            return View(*common, desc=DESC)
        return MaterializedView(*common, desc=DESC, shard="s", cluster="quickstart")

    made = [
        item(1, "table"),
        item(2, "view", 1),
        item(3, "materialized-view", 2),
        item(4, "materialized-view", 3),
        item(5, "materialized-view", 1),
        item(6, "table"),
        item(7, "materialized-view", 6),
    ]
    state = CatalogState(items={i.id: i for i in made})
    assert dependents_of_index(state, u(1)) == {u(1), u(2), u(3), u(5)}
    assert dependents_of_index(state, u(3)) == {u(3), u(4)}
    assert create_item(CatalogState(schemas={"public": Schema("u1", "public")}), made[0])
