"""Every kind of node, brought forward over random updates with random cuts, compared with the plan's meaning at every time."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from render_plans import PLANS
from render_reference import contents
from render_runner import Runner, duck

from mzsql.expr.engines import duckdb_connection
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import one_shot, render
from mzsql.render.rendered import InputSpec

TIMES = 6
VALUES = (None, 0, 1, 2, 3, -1)


@pytest.fixture(scope="module")
def connection():
    con = duckdb_connection()
    con.execute("SET threads = 1")
    return con


def random_updates(rng: random.Random, spec: InputSpec, size: int = 12) -> list:
    """Inserts, deletes, rows that leave and return at one time, errors that come and go; no multiplicity is ever negative."""
    updates: list = []
    held: Counter = Counter()
    for time in range(1, TIMES + 1):
        for _ in range(rng.randint(0, 3) if time > 1 else size):
            what = rng.random()
            if what < 0.45 or not held:
                row = tuple(rng.choice(VALUES) for _ in spec.columns)
                diff = rng.randint(1, 3)
                held[row] += diff
                updates.append((row, time, diff))
            elif what < 0.85:
                row = rng.choice(sorted(held, key=repr))
                diff = rng.randint(1, held[row])
                held[row] -= diff
                updates.append((row, time, -diff))
            else:
                row = rng.choice(sorted(held, key=repr))
                updates += [(row, time, -held[row]), (row, time, held[row])]
            held = +held
    if spec.has_errors and rng.random() < 0.3:
        begin, end = sorted(rng.sample(range(1, TIMES + 1), 2))
        updates += [("broken input", begin, 1), ("broken input", end, -1)]
    rng.shuffle(updates)
    return updates


def raw_rows(rendered, spec: InputSpec, updates, at: int) -> Counter:
    """An input's rows at a time, an index's own put back in order."""
    rows: Counter = Counter()
    imported = next((i for i in rendered.desc.index_imports if i.id == spec.id), None)
    for row, time, diff in updates:
        if time <= at and not isinstance(row, str):
            if imported is not None:
                rows[row[1], row[0]] += diff
            else:
                rows[row] += diff
    return Counter({r: d for r, d in rows.items() if d})


def expected(rendered, inputs, at: int) -> tuple[Counter, set]:
    desc = rendered.desc
    of = {}
    errors: Counter = Counter()
    for spec in rendered.inputs:
        gid = next((i.on_id for i in desc.index_imports if i.id == spec.id), spec.id)
        of[gid] = raw_rows(rendered, spec, inputs[spec.id], at)
        for row, time, diff in inputs[spec.id]:
            if isinstance(row, str) and time <= at:
                errors[row] += diff
    rows, messages = contents(desc, of)
    if rendered.output_key_arity is not None:
        rows = Counter({(row[1], row[0]): diff for row, diff in rows.items()})
    return rows, messages | {m for m, d in errors.items() if d}


def cuts(rng: random.Random) -> list[list[int]]:
    every = list(range(1, TIMES + 2))
    some = sorted({1, TIMES + 1, *rng.sample(every, 2)})
    return [rng.choice([[1, TIMES + 1], some]), every]


def check(name: str, seed: int, run) -> None:
    rng = random.Random(f"{name} {seed}")
    rendered = render(PLANS[name](), errors_in=lambda gid: gid != "u2")
    inputs = {spec.id: random_updates(rng, spec) for spec in rendered.inputs}
    answers = {t: expected(rendered, inputs, t) for t in range(1, TIMES + 1)}
    states = []
    for cut in cuts(rng):
        runner = Runner(rendered, run)
        # From what there is at the first time, or from nothing.
        start = rng.choice([0, cut[0]])
        runner.hydrate(inputs, start)
        bounds = [start + 1, *(b for b in cut if b > start + 1)]
        for lower, upper in itertools.pairwise(bounds):
            runner.step(inputs, lower, upper)
        for t in range(max(start, 1), TIMES + 1):
            assert runner.contents(t) == answers[t], (name, seed, cut, start, t)
        states.append({s.name: runner.arrangement(s, TIMES) for s in rendered.arrangements})
    fresh = Runner(rendered, run)
    fresh.hydrate(inputs, TIMES)
    assert fresh.contents(TIMES) == answers[TIMES], (name, seed, "hydration")
    states.append({s.name: fresh.arrangement(s, TIMES) for s in rendered.arrangements})
    for state in states[1:]:
        assert state == states[0], (name, seed)


@pytest.mark.parametrize("name", PLANS)
def test_steps_and_hydration_compute_what_the_plan_means(name, connection):
    check(name, 0, duck(connection))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1, 2), marks=pytest.mark.long, id="1"),
        pytest.param(range(2, 60), marks=pytest.mark.soak, id="2-59"),
    ],
)
@pytest.mark.parametrize("name", PLANS)
def test_many_seeds_compute_what_the_plan_means(name, seeds, connection):
    for seed in seeds:
        check(name, seed, duck(connection))


@pytest.mark.parametrize("name", PLANS)
def test_one_shot_computes_what_the_plan_means(name, connection):
    run = duck(connection)
    for seed in range(2):
        rng = random.Random(f"{name} {seed}")
        rendered = render(PLANS[name](), errors_in=lambda gid: gid != "u2")
        inputs = {spec.id: random_updates(rng, spec) for spec in rendered.inputs}
        runner = Runner(rendered, run)
        from render_runner import relation, row_of

        relations = {
            f"snap_{s.id}": relation(s.columns, inputs[s.id], errors=s.has_errors, timed=False)
            for s in rendered.inputs
        }
        shot = one_shot(rendered.desc, errors_in=lambda gid: gid != "u2")
        for record in run(shot.rendered(Engine.DUCKDB)[0], relations):
            row = record["mz_error"] or row_of(record, range(len(rendered.output_columns)))
            runner.output.append((row, TIMES, record["mz_diff"]))
        assert runner.contents(TIMES) == expected(rendered, inputs, TIMES)
