"""The commands, as a user calls them: through typer's runner, and once as a real process."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mzsql
from mzsql.cli.app import app, report

_MZSQL = str(Path(sys.executable).with_name("mzsql"))


def _invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, errors reported as the program reports them."""
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        code = report(result.exception)
    return code, result.stdout, told.getvalue()


def test_version() -> None:
    assert _invoke("--version") == (0, f"mzsql {mzsql.__version__}\n", "")


def test_help_names_every_command() -> None:
    code, out, _ = _invoke("--help")
    assert code == 0
    for command in ("demo", "sql", "shell", "inspect", "maintain"):
        assert command in out


def test_statements_and_their_answers(tmp_env: Path) -> None:
    code, out, err = _invoke(
        "sql",
        "-e",
        str(tmp_env),
        "CREATE TABLE t (a integer, b text)",
        "INSERT INTO t VALUES (1, 'x'), (2, NULL); SELECT * FROM t ORDER BY a",
    )
    assert (code, err) == (0, "")
    assert out == ("CREATE TABLE\nINSERT 0 2\n a | b\n---+---\n 1 | x\n 2 |\n(2 rows)\n\n")


def test_csv_and_stdin(tmp_env: Path) -> None:
    code, out, _ = _invoke(
        "sql", "-e", str(tmp_env), "--csv", stdin="SELECT 1 AS a, NULL AS b, '' AS c, 'x,y' AS d;"
    )
    assert (code, out) == (0, 'a,b,c,d\n1,,"","x,y"\n')


def test_a_script_stops_at_its_first_error(tmp_env: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "\\echo begin\nCREATE TABLE t (a integer);\nSELECT b FROM t;\nCREATE TABLE u (a integer);\n"
    )
    code, out, err = _invoke("sql", "-e", str(tmp_env), "--file", str(script))
    assert code == 1
    assert out == "begin\nCREATE TABLE\n"
    assert err.splitlines()[:3] == [
        'ERROR:  column "b" does not exist',
        "LINE 1: SELECT b FROM t",
        "               ^",
    ]
    _, out, _ = _invoke("sql", "-e", str(tmp_env), "--csv", "SHOW TABLES")
    assert "t" in out
    assert "u" not in out.split()


def test_a_syntax_error_shows_its_place(tmp_env: Path) -> None:
    code, _, err = _invoke("sql", "-e", str(tmp_env), "SELECT 1 +")
    assert code == 1
    assert err.startswith("ERROR:  ")
    assert err.splitlines()[1] == "LINE 1: SELECT 1 +"


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = _invoke("sql", "-e", str(tmp_path), "SELECT 1")
    assert code == 1
    assert "is not an mzsql environment" in err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_inspect_shows_whose_the_shards_are(tmp_env: Path) -> None:
    _invoke("sql", "-e", str(tmp_env), "CREATE TABLE t (a integer)", "INSERT INTO t VALUES (1)")
    code, out, err = _invoke("inspect", str(tmp_env), "--csv")
    assert (code, err) == (0, "")
    owners = [line.split(",")[0] for line in out.splitlines()[1:]]
    assert "the catalog" in owners
    assert "table materialize.public.t" in owners


def test_inspect_of_nothing(tmp_path: Path) -> None:
    code, _, err = _invoke("inspect", str(tmp_path / "nowhere"))
    assert code == 1
    assert "is not an mzsql environment" in err
    assert not (tmp_path / "nowhere").exists()


def test_a_wrong_command_line() -> None:
    code, _, err = _invoke("sql")
    assert code == 2
    assert "--env" in err


def _process(
    *arguments: str, seconds: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_MZSQL, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=seconds,
    )


def test_a_real_process(tmp_env: Path) -> None:
    done = _process("sql", "SELECT 40 + 2 AS answer", MZSQL_ENV=str(tmp_env))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == " answer\n--------\n     42\n(1 row)\n\n"
    failed = _process("sql", "-e", str(tmp_env), "SELECT 1 / 0")
    assert failed.returncode == 1
    assert failed.stderr == "ERROR:  division by zero\n"


def test_no_java_is_one_line(tmp_env: Path, tmp_path: Path) -> None:
    program = "CREATE TABLE t (a integer); CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM t"
    done = _process("sql", "-e", str(tmp_env), program, JAVA_HOME=str(tmp_path), PATH="/nowhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) <= 2
    assert "Java 17 or newer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    done = _process("demo", "--directory", str(tmp_path / "demo"), seconds=840)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in ("node_id: 0", "nodes", "expression cache: 3 of 3", "the same", "Done in"):
        assert word in done.stdout
