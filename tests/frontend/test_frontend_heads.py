"""Whose a statement is, by the words that it begins with."""

from __future__ import annotations

import pytest

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.parse.heads import Whose, whose


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN PLAN FOR SELECT 1",
        "explain locally optimized plan for select 1",
        "-- a comment\n/* and /* another */ one */ CREATE OR REPLACE MATERIALIZED VIEW v AS SELEC 1",
        "SHOW CLUSTER REPLICAS",
        "create default index on t",
        "DROP CLUSTER c",
        "SUBSCRIBE t",
        "COPY",
    ],
)
def test_what_only_mzsql_has_is_its_own_also_with_mistakes(text: str) -> None:
    assert whose(text) == (Whose.OURS, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("INSERT INTO T VALUES (1)", PartialName("t")),
        ("insert into t1(a) select 1", PartialName("t1")),
        ('UPDATE public."A.b" SET a = 1', PartialName("A.b", "public")),
        ("DROP TABLE IF EXISTS db.s.w$x", PartialName("w$x", "s", "db")),
        ("DELETE FROM select_me", PartialName("select_me")),
        ("SHOW CREATE VIEW v;", PartialName("v")),
    ],
)
def test_what_both_have_goes_by_the_relation(text: str, name: PartialName) -> None:
    assert whose(text) == (Whose.NAMED, name)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "EXPLAIN EXTENDED SELECT 1",
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS SELECT 1",
        "SHOW TABLES",
        "INSERT INTO `a b` VALUES (1)",
        '"EXPLAIN" PLAN',
        "'unfinished",
        "",
    ],
)
def test_the_rest_is_somebody_elses(text: str) -> None:
    assert whose(text) == (Whose.OTHERS, None)
