"""``mzsql open`` and ``mzsql deploy discard``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.startup import PHASES
from mzsql.cli.app import app


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def env(tmp_path: Path) -> str:
    path = str(tmp_path / "env")
    with mzsql.connect(path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
        con.execute("CREATE MATERIALIZED VIEW one AS SELECT count(*) AS n FROM t")
        con.execute("CREATE MATERIALIZED VIEW two AS SELECT n + 1 AS n FROM one")
    return path


def test_opening_tells_what_was_taken_up_and_where_the_time_went(
    env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "2 dataflows taken up, 0 of them optimized anew" in ran("open", "--env", env)
    monkeypatch.setattr(opening, "VERSION", "0.1.9")
    shown = ran("open", "--env", env, "--profile")
    assert "2 dataflows taken up, 2 of them optimized anew" in shown
    assert all(phase in shown for phase in PHASES)
    assert "2 dataflows taken up, 0 of them" in ran("open", "--env", env)


def test_what_a_program_has_left_that_is_not_promoted_is_discarded(
    env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(opening, "VERSION", "0.1.9")
        with mzsql.connect(env, deploy_generation=1) as con:
            assert con.coordinator.env.startup.wait(60)
        assert "2 plans and 0 arrangements of mzsql 0.1.9 removed" in ran("deploy", "discard", env)
        assert "0 plans and 0 arrangements of mzsql 0.1.9 removed" in ran("deploy", "discard", env)
    with mzsql.connect(env) as con:
        assert con.coordinator.env.startup.wait(60)
        assert con.plans_from_cache == (2, 2)
