"""``mzsql deploy``: what is in charge, and promoting."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mzsql
from mzsql.cli.app import app, report


def deploy(*arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed to either stream."""
    result = CliRunner().invoke(app, ["deploy", *arguments])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.output
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        return report(result.exception), told.getvalue()


def test_a_generation_is_promoted_while_processes_of_others_run(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    old = mzsql.connect(env)
    new = mzsql.connect(env, deploy_generation=0)
    try:
        old.execute("CREATE TABLE t (a int)")
        code, said = deploy("status", env)
        assert code == 0
        assert "generation 0 is in charge: none was ever promoted" in said
        assert "no process runs the dataflows now" in said
        new.close()
        new = mzsql.connect(env, deploy_generation=2)
        code, said = deploy("promote", env, "--generation", "2")
        assert code == 0
        assert re.match(r"generation 2 is in charge, promoted by \S+ \d+ at .* UTC\n$", said)
        with pytest.raises(mzsql.OperationalError, match="fenced by deploy generation 2"):
            old.execute("SELECT 1")
        new.execute("INSERT INTO t VALUES (1)")
        # again, and back
        assert deploy("promote", env, "-g", "2") == (0, said)
        code, told = deploy("promote", env, "-g", "1")
        assert code == 1
        assert "fenced by deploy generation 2" in told
        assert "this process is of generation 1" in told
    finally:
        old.close()
        new.close()


def test_there_is_nothing_to_promote_where_there_is_no_environment(tmp_path: Path) -> None:
    code, said = deploy("promote", str(tmp_path / "none"), "-g", "1")
    assert code == 1
    assert "is not an mzsql environment" in said
    assert not (tmp_path / "none").exists()
    stores = (
        "--blob",
        f"file:{tmp_path}/blob",
        "--consensus",
        f"sqlite:{tmp_path}/consensus.db",
    )
    code, said = deploy("promote", "-g", "1", *stores)
    assert code == 1
    assert "there is no mzsql environment" in said
