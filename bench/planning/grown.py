"""Plans and texts that grow: how much longer does it take when there is twice as much of it?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from time import process_time

from figures import median
from warehouse import Warehouse

from mzsql.expr import relation as mir
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import one_shot
from mzsql.repr.depth import deep
from mzsql.transform import OptimizerContext, pipeline

SCHEMA = """
CREATE TABLE facts (k bigint NOT NULL, a bigint, b bigint, c bigint);
CREATE TABLE names (id bigint NOT NULL, name text NOT NULL);
"""


def chained_views(number: int) -> str:
    """Tables and so many plain views, each over the one before: mostly row by row, some joins, groups, unions and subqueries among them."""
    views = ["CREATE VIEW v0 AS SELECT k, a, b, c FROM facts;"]
    for i in range(1, number + 1):
        before = f"v{i - 1}"
        match i % 10:
            case 3:
                query = f"SELECT v.k, v.a, v.b, v.c FROM {before} v JOIN names n ON n.id = v.b WHERE n.name <> 'x{i}'"
            case 5:
                query = f"SELECT k, sum(a)::bigint AS a, max(b) AS b, count(*) AS c FROM {before} GROUP BY k"
            case 7:
                query = f"SELECT * FROM {before} UNION ALL SELECT id, {i}, {i}, {i} FROM names"
            case 9:
                query = (
                    f"SELECT * FROM {before} v WHERE EXISTS (SELECT FROM names n WHERE n.id = v.a)"
                )
            case even if even % 2 == 0:
                query = f"SELECT k, a + {i} AS a, b, c FROM {before} WHERE c <> {i}"
            case _:
                query = f"SELECT k, a, b, b * c AS c FROM {before}"
        views.append(f"CREATE VIEW v{i} AS {query};")
    return SCHEMA + "\n".join(views)


# --- texts of about so many nodes ---------------------------------------------------------------


def branches(size: int) -> str:
    """A union of many joins."""
    return " UNION ALL ".join(
        f"SELECT f.k, n.name FROM facts f JOIN names n ON f.a = n.id + {i} WHERE f.b > {i}"
        for i in range(size // 12)
    )


def bindings(size: int) -> str:
    """Names in a WITH clause, each read twice by the next one."""
    number = size // 12
    parts = ["c0 AS (SELECT k, a, b FROM facts)"]
    parts.extend(
        f"c{i} AS (SELECT x.k, x.a + y.b AS a, y.b FROM c{i - 1} x JOIN c{i - 1} y ON x.k = y.a "
        f"WHERE y.b <> {i})"
        for i in range(1, number + 1)
    )
    return f"WITH {', '.join(parts)} SELECT * FROM c{number}"


def layers(size: int) -> str:
    """Groups over joins over groups, one upon another."""
    query = "SELECT k, a, b FROM facts"
    for i in range(size // 12):
        query = (
            f"SELECT q.k, max(q.a + n.id) AS a, count(*) + {i} AS b FROM ({query}) q "
            f"JOIN names n ON q.b = n.id WHERE q.a > {i} GROUP BY q.k"
        )
    return query


SHAPES: dict[str, Callable[[int], str]] = {
    "branches": branches,
    "bindings": bindings,
    "layers": layers,
}


def subqueries(depth: int) -> str:
    """So many subqueries, each inside the one before."""
    return "SELECT (" * depth + "SELECT 1" + ")" * depth


def memberships(depth: int) -> str:
    """So many INs, each inside the one before."""
    query = "SELECT a FROM facts"
    for i in range(depth):
        query = f"SELECT a FROM facts WHERE b IN ({query}) AND c <> {i}"
    return query


def wide_table(columns: int) -> str:
    """A table of so many columns."""
    return f"CREATE TABLE w ({', '.join(f'c{i} bigint' for i in range(columns))});"


def wide_query(columns: int) -> str:
    """Each of them computed with."""
    return f"SELECT {', '.join(f'c{i} + {i}' for i in range(columns))} FROM w"


# --- the time of each stage ----------------------------------------------------------------------


def by_stage(warehouse: Warehouse, text: str, rounds: int) -> dict[str, float]:
    """The median CPU seconds of planning a query, of rendering its statement for DuckDB, and of writing that."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        marks = [process_time()]
        plan = warehouse.plan(text)
        marks.append(process_time())
        ast, _loops = one_shot(plan).rendered(Engine.DUCKDB)
        marks.append(process_time())
        to_sql(ast, Engine.DUCKDB)
        marks.append(process_time())
        for name, begun, ended in zip(("plan", "render", "write"), marks, marks[1:], strict=False):
            found[name].append(ended - begun)
    return {name: median(values) for name, values in found.items()}


# --- the time of each transform ------------------------------------------------------------------


class Watch:
    """Runs the optimizer's own list of transforms and adds up what each takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def run(self, rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
        stages = (*pipeline.LOGICAL, *pipeline.PHYSICAL)
        return pipeline.run([self._timed(stage) for stage in stages], rel, ctx)

    def _timed(self, stage: pipeline.Stage) -> pipeline.Stage:
        if isinstance(stage, pipeline.Fixpoint):
            return replace(stage, transforms=tuple(self._timed(part) for part in stage.transforms))

        def run(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
            begun = process_time()
            found = stage.run(rel, ctx)
            self.seconds[stage.name] += process_time() - begun
            return found

        return replace(stage, run=run)


def by_transform(warehouse: Warehouse, text: str, rounds: int) -> tuple[int, dict[str, float]]:
    """The nodes of a query's plan before it is optimized, and the median seconds of each transform, `all` of them among these."""
    (built,) = warehouse.built(text).objects
    nodes = sum(1 for _ in mir.walk(built.plan))
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        watch = Watch()
        begun = process_time()
        with deep():
            watch.run(built.plan, warehouse.context)
        found["all"].append(process_time() - begun)
        for name, seconds in watch.seconds.items():
            found[name].append(seconds)
    return nodes, {name: median(values) for name, values in found.items()}


def exponent(small: float, large: float, times: float) -> float:
    """x where `times` as much of something takes ``times ** x`` as long."""
    return math.log(max(large, 1e-9) / max(small, 1e-9), times)
