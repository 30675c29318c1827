"""Which function carries out a statement: told by its plan's class, of which each is in one family's table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commit_kit import Place, opened

import mzsql
from mzsql.frontend.plan.cursor_plans import ExecutePlan
from mzsql.frontend.plan.sequenced import DefiningPlan, StatementPlan
from mzsql.repr.errors import SqlError


def _classes(base: type[StatementPlan]) -> Iterator[type[StatementPlan]]:
    for plan in base.__subclasses__():
        if plan.__struct_config__.tag is not None and plan.__module__.startswith("mzsql."):
            yield plan
        yield from _classes(plan)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(tmp_path_factory.mktemp("env")) as (one,):
        yield one


def test_every_plan_is_carried_out(place: Place) -> None:
    plans = set(_classes(StatementPlan))
    assert len(plans) > 40
    assert place.coordinator._sequencer.plans == plans


def test_every_plan_says_its_command_tag() -> None:
    for plan in _classes(StatementPlan):
        own = plan.tag_text is not StatementPlan.tag_text
        assert plan.command or own or plan is ExecutePlan, plan
    assert all(plan.defines for plan in _classes(DefiningPlan))


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("CREATE SCHEMA s", "CREATE SCHEMA"),
        ("CREATE DATABASE d", "CREATE DATABASE"),
        ("CREATE ROLE r", "CREATE ROLE"),
        ("CREATE CLUSTER c REPLICAS (one (SIZE '1'))", "CREATE CLUSTER"),
        ("CREATE CLUSTER REPLICA c.two SIZE '1'", "CREATE CLUSTER REPLICA"),
        ("CREATE TABLE s.t (a int)", "CREATE TABLE"),
        ("CREATE TYPE k AS LIST (ELEMENT TYPE = int)", "CREATE TYPE"),
        ("CREATE VIEW v AS SELECT a FROM s.t", "CREATE VIEW"),
        ("ALTER TABLE s.t RENAME TO u", "ALTER TABLE"),
        ("ALTER TABLE s.u SET (RETAIN HISTORY FOR '1 day')", "ALTER TABLE"),
        ("COMMENT ON TABLE s.u IS 'x'", "COMMENT"),
        ("GRANT SELECT ON s.u TO r", "GRANT"),
        ("GRANT r TO mzsql", "GRANT ROLE"),
        ("REVOKE r FROM mzsql", "REVOKE ROLE"),
        ("ALTER DEFAULT PRIVILEGES FOR ROLE r GRANT SELECT ON TABLES TO PUBLIC", "ALTER DEFAULT PRIVILEGES"),
        ("REASSIGN OWNED BY r TO mzsql", "REASSIGN OWNED"),
        ("DROP OWNED BY r", "DROP OWNED"),
        ("ALTER CLUSTER c SET (MANAGED false)", "ALTER CLUSTER"),
        ("ALTER ROLE r INHERIT", "ALTER ROLE"),
        ("DROP VIEW v", "DROP VIEW"),
        ("DROP TYPE k", "DROP TYPE"),
        ("DROP TABLE s.u", "DROP TABLE"),
        ("DROP CLUSTER REPLICA c.two", "DROP CLUSTER REPLICA"),
        ("DROP CLUSTER c", "DROP CLUSTER"),
        ("DROP ROLE r", "DROP ROLE"),
        ("DROP SCHEMA s", "DROP SCHEMA"),
        ("DROP DATABASE d", "DROP DATABASE"),
    ],
)  # fmt: skip
def test_tags_of_ddl_are_postgresqls(place: Place, text: str, tag: str) -> None:
    (result,) = place.run(text)
    assert (result.tag, result.defined) == (tag, True)


def test_a_missing_type_is_none_of_the_roles(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path) as con:
        con.execute("CREATE ROLE point")
        con.execute("ALTER TYPE IF EXISTS point RENAME TO place")
        notices = [one.message for one in con.notices]
    assert notices == ['type "point" does not exist, skipping']


def test_columns_of_the_systems_tables_take_no_comments(place: Place) -> None:
    for relation in ("mz_catalog.mz_tables", "mz_catalog.mz_relations"):
        with pytest.raises(SqlError, match="system item"):
            place.run(f"COMMENT ON COLUMN {relation}.id IS 'x'")
