"""Whose a statement is, by the words that it begins with."""

from __future__ import annotations

import pytest

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.parse import catalog, cursors, ddl, dml, privileges, session
from mzsql.frontend.parse.heads import Whose, whose


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN PLAN FOR SELECT 1",
        "explain locally optimized plan for select 1",
        "-- a comment\n/* and /* another */ one */ CREATE OR REPLACE MATERIALIZED VIEW v AS SELEC 1",
        "SHOW CLUSTER REPLICAS",
        "SHOW CLUSTER REPLICASS",
        "create default index on t",
        "DROP CLUSTER c",
        "SUBSCRIBE t",
        "COPY",
        "CREATE ROLE r",
        "create type t as list (element type = int)",
        "ALTER SYSTEM SET step_engine = 'duckdb'",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO r",
        "GRANT SELECT ON t TO r",
        "REVOKE r FROM s",
        "COMMENT ON MATERIALIZED VIEW v IS 'x'",
        "SHOW ROLES",
        "SHOW TYPES",
        "SHOW DEFAULT PRIVILEGES",
        "SHOW CREATE TYPE t",
        "EXPLAIN ANALYZE MEMORY FOR MATERIALIZED VIEW v",
        "DROP OWNED BY r",
        "DECLARE c CURSOR FOR SELECT 1",
        "declare c no scroll cursor for select 1",
        "FETCH 2 FROM c",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "BEGIN READ ONLY",
        "START TRANSACTION",
        "COMMIT",
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
        ("ALTER TABLE IF EXISTS a.t RENAME TO u", PartialName("t", "a")),
        ("COMMENT ON VIEW v IS 'x'", PartialName("v")),
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
        "CREATE SCHEMA s",
        "COMMENT ON SCHEMA s IS 'x'",
        "SET a = b",
        "BEGIN SELECT 1; END",
        "DECLARE VARIABLE x INT DEFAULT 5",
        "DECLARE x INT",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "SHOW FUNCTIONS",
        "SHOW TABLES",
        "INSERT INTO `a b` VALUES (1)",
        '"EXPLAIN" PLAN',
        "'unfinished",
        "",
    ],
)
def test_the_rest_is_somebody_elses(text: str) -> None:
    assert whose(text) == (Whose.OTHERS, None)


def test_a_statement_is_mzsqls_unless_its_family_says_otherwise() -> None:
    """So one that is added is; the families name no statement that there is not, and no form of a statement that is mzsql's anyway."""
    families = (catalog, cursors, ddl, dml, privileges, session)
    tables = {
        words: family
        for family in families
        for words, _ in (*family.STATEMENTS, *getattr(family, "NESTING", ()))
    }
    for words, family in tables.items():
        shared = {*getattr(family, "OTHERS", ()), *getattr(family, "NAMED", ())}
        theirs = words in shared
        assert (whose(" ".join(words))[0] == Whose.OURS) != theirs, words
    for family in families:
        own = getattr(family, "OWN", ())
        assert [whose(" ".join(words))[0] for words in own] == [Whose.OURS] * len(own)
        for words in (*getattr(family, "OTHERS", ()), *own, *getattr(family, "NAMED", ())):
            assert any(words[: len(one)] == one for one in tables), words
