"""A catalog in memory and the way from a text to its physical plan: everything that planning does, and nothing that runs a plan."""

from __future__ import annotations

import re
from pathlib import Path

from memory_catalog import MemoryCatalog

from mzsql.expr.dataflow import MirDataflow, MirSource, PeekExport
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.memo import remembering
from mzsql.expr.relation import Relation
from mzsql.frontend import lower_query, parse_statements, plan_statement
from mzsql.frontend.plan import ddl_plans, plans
from mzsql.lir import lower
from mzsql.lir.plan import DataflowDescription
from mzsql.repr.ids import GlobalId
from mzsql.transform import OptimizerContext, build_dataflow, optimize_dataflow, optimize_local

TPCH = Path(__file__).resolve().parents[2] / "sql" / "tpch"


class Warehouse:
    """Tables and plain views; views are planned when they are first read, or all anew after `forget`."""

    def __init__(self, ddl: str) -> None:
        self.catalog = MemoryCatalog()
        self.catalog.run(ddl)
        self._evaluator = Evaluator()
        self.context = OptimizerContext(self._evaluator)
        self._views: dict[GlobalId, Relation] = {}

    def close(self) -> None:
        self._evaluator.close()

    def forget(self) -> None:
        """As if no view had been read yet."""
        self._views.clear()

    def plan(self, text: str) -> DataflowDescription:
        """The physical plan of a SELECT."""
        query = self._query(text)
        # As where a statement is planned for good.
        with remembering():
            return lower(optimize_dataflow(self._dataflow(query), self.context))

    def optimized(self, text: str) -> MirDataflow:
        return optimize_dataflow(self.built(text), self.context)

    def built(self, text: str) -> MirDataflow:
        """The dataflow of a SELECT, its views in it, not optimized yet."""
        return self._dataflow(self._query(text))

    def _query(self, text: str) -> Relation:
        (statement,) = parse_statements(text)
        plan = plan_statement(statement, self.catalog)
        assert isinstance(plan, plans.SelectPlan)
        return lower_query(plan.query).relation

    def _dataflow(self, relation: Relation) -> MirDataflow:
        export = PeekExport(GlobalId("t1"))
        return build_dataflow(export, relation, self._view, self._source, self.context)

    def _source(self, gid: GlobalId) -> MirSource:
        desc = self.catalog.item(gid).desc
        assert desc is not None
        return MirSource(gid, desc.typ)

    def _view(self, gid: GlobalId) -> Relation | None:
        item = self.catalog.item(gid)
        if item.kind != "view":
            return None
        if gid not in self._views:
            (statement,) = parse_statements(item.create_sql)
            plan = plan_statement(statement, self.catalog)
            assert isinstance(plan, ddl_plans.CreateViewPlan)
            lowered = lower_query(plan.query)
            relation = lowered.finishing.folded(lowered.relation)
            self._views[gid] = optimize_local(relation, self.context)
        return self._views[gid]


def tpch_queries() -> dict[str, str]:
    """The 22 queries as they are shipped, as SELECT."""
    found = {}
    for path in sorted(TPCH.glob("q*.sql")):
        _, select = re.split(r"CREATE MATERIALIZED VIEW \w+ AS", path.read_text())
        found[path.stem] = select.strip().rstrip(";")
    return found


def tpch_schema() -> str:
    return (TPCH / "schema.sql").read_text()
