"""The statements of hydrations and steps are written as sqlglot writes a copy of them, and stay as they are."""

from __future__ import annotations

import pickle
import re

import pytest
from sqlglot import expressions as exp
from sqlglot.generators.duckdb import DuckDBGenerator
from test_render_queries import QUERIES, SMALL, SQL, MemoryCatalog, planned

from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import RenderedDataflow, one_shot, render


def statements(rendered: RenderedDataflow) -> list[exp.Expression]:
    stages = [one.statement for one in rendered.hydration(Engine.DUCKDB, 5)]
    steps = [rendered.step(Engine.DUCKDB, 5, 9).statement]
    steps += [rendered.template(Engine.DUCKDB, at_once=True).at(5, 6).statement]
    shot, _ = one_shot(rendered.desc).rendered(Engine.DUCKDB)
    return [*stages, *steps, shot]


def check(rendered: RenderedDataflow) -> None:
    for statement in statements(rendered):
        wanted = DuckDBGenerator(dialect="duckdb", identify=True, comments=False)
        text, before = wanted.generate(statement), pickle.dumps(statement)
        assert to_sql(statement, Engine.DUCKDB) == text
        assert pickle.dumps(statement) == before


@pytest.mark.parametrize("number", [1, 7, 13, 16, 19, 22])
def test_queries_of_tpch(number: int) -> None:
    catalog = MemoryCatalog()
    catalog.run((SQL / "schema.sql").read_text())
    text = (SQL / f"q{number:02d}.sql").read_text()
    query = re.sub(r"(?s)^.*?CREATE MATERIALIZED VIEW \w+ AS", "", text).strip().rstrip(";")
    check(render(planned(catalog, query), errors_in=lambda _: number % 2 == 0))


@pytest.mark.parametrize("name", QUERIES)
def test_small_queries(name: str) -> None:
    catalog = MemoryCatalog()
    catalog.run(SMALL)
    check(render(planned(catalog, QUERIES[name])))
