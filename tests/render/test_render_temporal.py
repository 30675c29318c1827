"""Filters on the time: whatever the cuts, a view holds at every time the rows whose bounds say so, and keeps the events to come."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import msgspec
import pytest
from render_plans import INT, Build, c, call, flow, lit, mfp
from render_runner import Runner, duck
from test_render_steps import TIMES, random_updates

from mzsql.expr.engines import duckdb_connection
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.expr.temporal import NOW, extract_temporal, plan_temporal
from mzsql.lir import plan as lir
from mzsql.render.dataflow import render
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import MAX_TIMESTAMP
from mzsql.repr.types import BOOLEAN, MZ_TIMESTAMP


def time_of(expr: Scalar) -> Call:
    return Call("integer_to_mz_timestamp", (expr,), MZ_TIMESTAMP)


def now(op: str, expr: Scalar) -> Call:
    return Call(f"{op}_mz_timestamp", (NOW, expr), BOOLEAN)


#: The columns of a row are c0, c1; a time below 0 is an error.
BETWEEN = (now("gte", time_of(c(0))), now("lte", time_of(c(1))))
FILTERS = {
    "between": BETWEEN,
    "from": (now("gt", time_of(c(0))),),
    "until": (now("lt", time_of(c(1))),),
    "at": (now("eq", time_of(c(0))),),
    "turned": (Call("lte_mz_timestamp", (time_of(c(0)), NOW), BOOLEAN),),
    "of a literal": (now("lt", Literal(4, MZ_TIMESTAMP)),),
    "several": (*BETWEEN, now("lt", time_of(call("add_integer", c(0), lit(2))))),
    "beside another": (now("gte", time_of(c(0))), call("gt_integer", c(1), lit(0), typ=BOOLEAN)),
}


def plain(name: str) -> lir.DataflowDescription:
    b = Build()
    return flow(b.get("u1", plan=mfp(2, (), FILTERS[name])), ("u1",))


def over_import() -> lir.DataflowDescription:
    """Where the whole filter was pushed into the source's import."""
    b = Build()
    made = flow(b.get("u1"), ("u1",))
    (source,) = made.source_imports

    pushed = msgspec.structs.replace(source, mfp=mfp(2, (), BETWEEN, [1, 0]))
    return msgspec.structs.replace(made, source_imports=(pushed,))


def over_constant() -> lir.DataflowDescription:
    b = Build()
    rows = tuple(((n % 4, n), 1) for n in range(TIMES + 3))
    constant = lir.Constant(b.id(), rows, None, (INT, INT))
    return flow(b.mfp(constant, mfp(2, (), BETWEEN)), ())


def holds(predicates, row: tuple, at: int) -> bool | str:
    """Whether a row is there; the message where a time of it cannot be one."""

    def value(expr: Scalar):
        match expr:
            case Column(index=i):
                return row[i]
            case Literal(value=v):
                return v
            case Call(func="add_integer", args=(a, b)):
                x = value(a)
                return None if x is None else x + value(b)
            case Call(func="integer_to_mz_timestamp", args=(a,)):
                x = value(a)
                if x is not None and x < 0:
                    raise OverflowError
                return x
        return at

    order = {
        "gte": lambda x, y: x >= y,
        "lte": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "lt": lambda x, y: x < y,
        "eq": lambda x, y: x == y,
    }
    kept = True
    for predicate in predicates:
        left, right = (value(a) for a in predicate.args)
        known = left is not None and right is not None
        kept = kept and known and order[predicate.func.split("_")[0]](left, right)
    return kept


def expected(predicates, updates, at: int) -> tuple[Counter, set]:
    rows: Counter = Counter()
    errors: Counter = Counter()
    for row, time, diff in updates:
        if time > at:
            continue
        if isinstance(row, str):
            errors[row] += diff
            continue
        other = [p for p in predicates if "mz_timestamp" not in p.func]
        try:
            if not all(holds([p], row, at) for p in other):
                continue
            if holds([p for p in predicates if p not in other], row, at):
                rows[row] += diff
        except OverflowError:
            errors["failed"] += diff
    return Counter({r: d for r, d in rows.items() if d}), {m for m, d in errors.items() if d}


def run(rendered, inputs, cut, start, connection) -> Runner:
    runner = Runner(rendered, duck(connection))
    runner.hydrate(inputs, start)
    bounds = [start + 1, *(b for b in cut if b > start + 1)]
    for lower, upper in itertools.pairwise(bounds):
        runner.step(inputs, lower, upper)
    return runner


@pytest.fixture(scope="module")
def connection():
    con = duckdb_connection()
    con.execute("SET threads = 1")
    return con


def _messages(found: set) -> set:
    return {m if m == "broken input" else "failed" for m in found}


@pytest.mark.parametrize("name", FILTERS)
def test_rows_come_and_go_at_their_times_whatever_the_cuts(name, connection):
    for seed in range(3):
        rng = random.Random(f"{name} {seed}")
        rendered = render(plain(name), errors_in=lambda _: True)
        assert rendered.temporal
        inputs = {spec.id: random_updates(rng, spec) for spec in rendered.inputs}
        states = []
        for cut in ([1, TIMES + 1], [1, 3, TIMES + 1], list(range(1, TIMES + 2))):
            start = rng.choice([0, 1])
            runner = run(rendered, inputs, cut, start, connection)
            for at in range(max(start, 1), TIMES + 1):
                rows, errors = runner.contents(at)
                wanted, failed = expected(FILTERS[name], inputs["u1"], at)
                assert (rows, _messages(errors)) == (wanted, failed), (seed, cut, start, at)
            states.append({s.name: runner.arrangement(s, TIMES) for s in rendered.arrangements})
        fresh = run(rendered, inputs, [], TIMES, connection)
        assert fresh.contents(TIMES) == runner.contents(TIMES)
        states.append({s.name: fresh.arrangement(s, TIMES) for s in rendered.arrangements})
        assert all(state == states[0] for state in states)


def test_a_filter_pushed_into_an_import_is_the_same(connection):
    rng = random.Random(0)
    rendered = render(over_import(), errors_in=lambda _: False)
    (spec,) = rendered.inputs
    inputs = {spec.id: [u for u in random_updates(rng, spec) if -1 not in u[0]]}
    runner = run(rendered, inputs, [1, 4, TIMES + 1], 0, connection)
    for at in range(1, TIMES + 1):
        wanted, _ = expected(BETWEEN, inputs[spec.id], at)
        assert runner.contents(at)[0] == Counter({(b, a): d for (a, b), d in wanted.items()})


def test_constants_come_and_go_without_any_update(connection):
    rendered = render(over_constant())
    runner = run(rendered, {}, [1, 2, TIMES + 3, MAX_TIMESTAMP], 0, connection)
    for at in range(TIMES + 5):
        rows, _ = runner.contents(at)
        assert rows == Counter({(n % 4, n): 1 for n in range(TIMES + 3) if n % 4 <= at <= n}), at
    assert not any(runner.arrangement(s, MAX_TIMESTAMP) for s in rendered.arrangements)


def test_a_step_reads_the_events_that_are_due_and_no_others(connection):
    rendered = render(plain("until"), errors_in=lambda _: False)
    runner = Runner(rendered, duck(connection))
    updates = [((0, n), 0, 1) for n in range(10, 1000)]
    runner.hydrate({"u1": updates}, 0)
    runner.step({"u1": updates}, 1, 13)
    assert runner.rows_given == 3


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (now("not_eq", time_of(c(0))), "compared by"),
        (Call("or", BETWEEN, BOOLEAN), "directly compared"),
        (Call("lt_mz_timestamp", (NOW, NOW), BOOLEAN), "one side"),
        (Call("is_null", (NOW,), BOOLEAN), "directly compared"),
    ],
)
def test_what_cannot_be_told_as_bounds_is_refused(predicate, message):
    with pytest.raises(Unsupported, match=message):
        plan_temporal(mfp(2, (), [predicate]))


def test_the_value_of_the_moment_is_no_column_of_a_maintained_view():
    b = Build()
    with pytest.raises(Unsupported, match="mz_now"):
        render(flow(b.mfp(b.get("u1"), mfp(2, [NOW])), ("u1",)))


def test_a_filter_is_taken_apart_from_the_rest_of_its_mfp():
    whole = MapFilterProject(
        2,
        (call("add_integer", c(0), c(1)), NOW),
        (
            (3, call("gt_integer", c(2), lit(0), typ=BOOLEAN)),
            (4, Call("lt_mz_timestamp", (c(3), time_of(c(2))), BOOLEAN)),
        ),
        (1,),
    )
    first, then = extract_temporal(whole)
    assert plan_temporal(first) is None
    assert first.output_arity == 2
    found = plan_temporal(then)
    assert found is not None
    assert [bound.after for bound in found.upper] == [False]
    assert found.lower == ()
    assert then.output_arity == 1
    assert extract_temporal(first) == (first, None)


def test_a_step_is_rendered_for_spark_too():
    text = render(plain("between")).step(Engine.SPARK, 5, 9).statement.sql("spark")
    assert "GREATEST" in text
    assert " 9" in text
