"""Between every two passes over real queries a plan is well formed, and no pass has more to say of its own result."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from random_plans_kit import PlanGenerator
from typecheck_kit import typecheck

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import MirSource, PeekExport
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Column
from mzsql.expr.typing import relation_type
from mzsql.frontend import lower_query
from mzsql.frontend.plan import plans
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType
from mzsql.transform import (
    IndexDesc,
    OptimizerContext,
    OptimizerFeatures,
    build_dataflow,
    pipeline,
)

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "frontend"))
from memory_catalog import MemoryCatalog  # noqa: E402

TPCH = HERE.parent.parent / "sql" / "tpch"
QUERIES = {
    path.stem: re.split(r"CREATE MATERIALIZED VIEW \w+ AS", path.read_text())[1].strip(" ;\n")
    for path in sorted(TPCH.glob("q*.sql"))
}
#: One of each kind: joins of many, subqueries of every form, an outer join, a CASE.
DAILY = ("q02", "q04", "q13", "q17", "q19", "q21")
CORPUS = (HERE / "plans.txt").read_text()
SETUP, *REST = re.split(r"^-- (?=\S)", CORPUS, flags=re.MULTILINE)
CASES = {
    title: re.sub(r"^.*?\bFOR ", "", body.partition("\n----\n")[0].strip(), count=1)
    for title, _, body in (entry.partition("\n") for entry in REST)
}


def stages(found: tuple[pipeline.Stage, ...]) -> Iterator[pipeline.Transform]:
    for stage in found:
        if isinstance(stage, pipeline.Transform):
            yield stage
        else:
            yield from stages(stage.transforms)


TRANSFORMS = {t.name: t for t in stages((*pipeline.LOGICAL, *pipeline.PHYSICAL))}


class Watched:
    """Optimizes, looking at the plan after every pass; `settled`: also at what the pass makes of it once more."""

    def __init__(self, evaluator: Evaluator, *, settled: bool, indexed: bool) -> None:
        self._expected: RelationType | None = None
        self._settled = settled
        self._indexed = indexed
        self._types: dict[GlobalId, RelationType] = {}
        self.seen: list[str] = []
        features = OptimizerFeatures(
            enable_reduce_reduction=indexed, enable_coalesce_case_transform=indexed
        )
        self.ctx = OptimizerContext(evaluator, self._indexes, features, check=self._check)
        self._plain = OptimizerContext(evaluator, self._indexes, features)

    def _indexes(self, gid: GlobalId) -> tuple[IndexDesc, ...]:
        if not self._indexed:
            return ()
        return tuple(
            IndexDesc(GlobalId(f"u{1000 + 10 * int(gid[1:]) + c}"), gid, (Column(c),))
            for c in range(min(2, self._types[gid].arity))
        )

    def _check(self, name: str, rel: mir.Relation) -> None:
        self.seen.append(name)
        typecheck(rel, self._expected)
        if self._settled:
            assert TRANSFORMS[name].run(rel, self._plain) == rel, name

    def plan(self, catalog: MemoryCatalog, text: str) -> None:
        planned = catalog.plan(text)
        assert isinstance(planned, plans.SelectPlan)

        def source(gid: GlobalId) -> MirSource:
            self._types[gid] = catalog.item(gid).desc.typ  # type: ignore[union-attr]  # a table has one
            return MirSource(gid, self._types[gid])

        for gid in (item.id for item in catalog.items.values() if item.desc is not None):
            source(gid)
        # The tables have their indexes; there are no views.
        relation = lower_query(planned.query).relation
        export = PeekExport(GlobalId("t1"))
        built = build_dataflow(export, relation, lambda _: None, source, self.ctx)
        self.optimize(built.objects[-1].plan)

    def optimize(self, rel: mir.Relation) -> None:
        self._expected = relation_type(rel)
        with deep():
            typecheck(pipeline.optimize(rel, self.ctx), self._expected)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def tpch() -> MemoryCatalog:
    catalog = MemoryCatalog()
    catalog.run((TPCH / "schema.sql").read_text())
    return catalog


@pytest.fixture(scope="module")
def corpus() -> MemoryCatalog:
    catalog = MemoryCatalog()
    catalog.run("".join(s + ";" for s in SETUP.split(";") if "CREATE TABLE" in s))
    return catalog


@pytest.mark.parametrize("name", DAILY)
def test_queries_of_tpch_stay_well_formed(
    tpch: MemoryCatalog, evaluator: Evaluator, name: str
) -> None:
    watched = Watched(evaluator, settled=False, indexed=False)
    watched.plan(tpch, QUERIES[name])
    assert len(set(watched.seen)) > 5


@pytest.mark.long
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_passes_over_tpch_are_well_formed_and_settled(
    tpch: MemoryCatalog, evaluator: Evaluator, name: str, indexed: bool
) -> None:
    watched = Watched(evaluator, settled=True, indexed=indexed)
    watched.plan(tpch, QUERIES[name])
    assert {"predicate_pushdown", "projection_pushdown"} <= set(watched.seen)


@pytest.mark.long
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("title", CASES)
def test_passes_over_the_corpus_are_well_formed_and_settled(
    corpus: MemoryCatalog, evaluator: Evaluator, title: str, indexed: bool
) -> None:
    Watched(evaluator, settled=True, indexed=indexed).plan(corpus, CASES[title])


#: Plan 27: an exchange of columns above a Map of which no scalar is read goes below what is under that.
@pytest.mark.parametrize("seeds", [range(24, 32), pytest.param(range(400), marks=pytest.mark.long)])
def test_passes_over_random_plans_are_settled(evaluator: Evaluator, seeds: range) -> None:
    for seed in seeds:
        generator = PlanGenerator(seed)
        plan = generator.recursive_plan() if seed % 4 == 0 else generator.plan()
        Watched(evaluator, settled=True, indexed=False).optimize(plan)
