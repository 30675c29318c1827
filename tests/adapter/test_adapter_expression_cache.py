"""The expression cache: reconciliation at open, invalidation, two processes, round trips of plans."""

from __future__ import annotations

import pytest

from mzsql.adapter.environment.expression_cache import (
    ExpressionCache,
    GlobalExpressions,
    LocalExpression,
    dependents_of_index,
)
from mzsql.catalog.commands.items import create_item
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
    cache.update({u(3): LocalExpression(relation(3), "f")}, {u(2): plan(2), u(4): plan(4)})
    again = world.cache()
    assert again.open({u(2): 1, u(3): 1, u(4): 1}, remove_prior_versions=True) == {
        u(2): plan(2),
        u(4): plan(4),
    }
    assert again.local(u(3), "f", 1) == relation(3)
    assert again.plan(u(2), "f", 1) == plan(2)
    assert (again.counts.hits, again.counts.misses) == (1, 0)


def test_a_dropped_object_is_gone_for_good(world: World) -> None:
    world.cache().update(new_global={u(2): plan(2), u(3): plan(3)})
    assert set(world.cache().open({u(3): 1}, remove_prior_versions=False)) == {u(3)}
    assert set(world.cache().open({u(2): 1, u(3): 1}, remove_prior_versions=False)) == {u(3)}


def test_a_dropped_index_takes_plans_that_import_it_but_not_local_expressions(world: World) -> None:
    world.cache().update(
        {u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2, indexes=(u(9),)), u(3): plan(3)}
    )
    cache = world.cache()
    assert set(cache.open({u(2): 1, u(3): 1}, remove_prior_versions=True)) == {u(3)}
    assert cache.local(u(2), "f", 1) == relation(2)


def test_a_new_version_of_an_object_has_no_plan(world: World) -> None:
    world.cache().update({u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2)})
    cache = world.cache()
    assert cache.open({u(2): 2}, remove_prior_versions=True) == {}
    assert cache.local(u(2), "f", 2) is None
    assert world.cache().open({u(2): 1}, remove_prior_versions=True) == {}


def test_other_features_are_a_miss(world: World) -> None:
    cache = world.cache()
    cache.update({u(2): LocalExpression(relation(2), "f")}, {u(2): plan(2)})
    assert cache.plan(u(2), "g", 1) is None
    assert cache.local(u(2), "g", 1) is None
    assert cache.counts.misses == 1


def test_builds_do_not_see_each_other_until_the_new_one_removes_the_old(world: World) -> None:
    world.cache("1").update(new_global={u(2): plan(2)})
    new = world.cache("2")
    assert new.open({u(2): 1}, remove_prior_versions=False) == {}
    assert set(world.cache("1").open({u(2): 1}, remove_prior_versions=False)) == {u(2)}
    new.update(new_global={u(2): plan(2)})
    new.open({u(2): 1}, remove_prior_versions=True)
    assert world.cache("1").open({u(2): 1}, remove_prior_versions=False) == {}
    assert set(world.cache("2").open({u(2): 1}, remove_prior_versions=False)) == {u(2)}


def test_an_id_that_is_invalidated_and_inserted_ends_with_the_new_value(world: World) -> None:
    cache = world.cache()
    cache.update({u(2): LocalExpression(relation(7), "f")}, {u(2): plan(2)})
    cache.update(None, {u(2): plan(2, version=5)}, invalidate=[u(2), u(99)])
    assert cache.plan(u(2), "f", 5) == plan(2, version=5)
    assert cache.local(u(2), "f", 1) is None


def test_processes_of_one_build_read_each_others_changes(world: World) -> None:
    one, two = world.cache(), world.cache()
    one.update(new_global={u(2): plan(2)})
    two.update(new_global={u(3): plan(3)})
    two.update(invalidate=[u(2)])
    one.sync()
    assert one.plan(u(2), "f", 1) is None
    assert one.plan(u(3), "f", 1) == plan(3)


def test_bytes_that_are_no_plan_are_as_if_they_were_not_there(world: World) -> None:
    cache = world.cache()
    cache._map.apply(lambda _: {"1/u2/global": b"\xc1 junk"})
    assert cache.plan(u(2), "f", 1) is None
    assert cache.open({u(2): 1}, remove_prior_versions=True) == {}


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
