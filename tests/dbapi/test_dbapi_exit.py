"""A program that ends with a connection open says what it said itself and nothing more, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mzsql

OPEN = """
import sys, mzsql
con = mzsql.connect(sys.argv[1])
con.execute("SELECT 1")
con.execute("CREATE TABLE t (a bigint, b text)")
"""

FORKED = """
import atexit, os
child = os.fork()
if child == 0:
    atexit._run_exitfuncs()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
con.execute("INSERT INTO t VALUES (1, 'still open')")
"""

HYDRATING = """
con.execute("INSERT INTO t SELECT g, 'x' || g::text FROM generate_series(1, 20000) AS g")
con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, sum(a) FROM t GROUP BY b")
"""


def run(script: str, env: Path) -> tuple[int, str]:
    """The exit code of a program, and what it printed besides its traceback."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(env)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    said = done.stdout
    if said.startswith("Traceback") and said.endswith("ValueError: mine\n"):
        assert said.count("Traceback") == 1, said
        said = "ValueError: mine"
    return done.returncode, said


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        ("", 0, ""),
        pytest.param("raise SystemExit", 0, "", marks=pytest.mark.long),
        ("raise SystemExit(3)", 3, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        (FORKED + "raise ValueError('mine')", 1, "ValueError: mine"),
    ],
    ids=["end", "exit", "exit code", "error", "forked child"],
)
def test_exit_with_an_open_connection(tmp_path: Path, end: str, code: int, says: str) -> None:
    assert run(OPEN + end, tmp_path / "env") == (code, says)


def test_an_open_transaction_leaves_nothing_behind(tmp_path: Path) -> None:
    rows = "INSERT INTO t SELECT g, repeat('x', 20) || g::text FROM generate_series(1, 20000) AS g"
    script = OPEN + f'con.execute("BEGIN")\ncon.execute("{rows}")\n'
    assert run(script + "sys.exit(3)", tmp_path / "env") == (3, "")
    assert not list((tmp_path / "env").rglob("*.parquet"))
    with mzsql.connect(tmp_path / "env") as con:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        ("sys.exit(3)", 3, ""),
        pytest.param(
            "con.execute('SELECT * FROM v')\nraise ValueError('mine')",
            1,
            "ValueError: mine",
            marks=pytest.mark.long,
        ),
    ],
    ids=["while it hydrates", "once it is there"],
)
def test_exit_with_a_view(tmp_path: Path, end: str, code: int, says: str) -> None:
    assert run(OPEN + HYDRATING + end, tmp_path / "env") == (code, says)


def test_a_view_that_is_kept_in_process_says_nothing(tmp_path: Path) -> None:
    keeping = (
        "con.execute(\"ALTER SYSTEM SET step_engine = 'duckdb'\")\n"
        'con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, sum(a) FROM t GROUP BY b")\n'
        "for n in range(5):\n"
        "    con.execute(f\"INSERT INTO t VALUES ({n}, 'x')\")\n"
        "    assert len(con.execute('SELECT * FROM v').fetchall()) == 1\n"
    )
    assert run(OPEN + keeping, tmp_path / "env") == (0, "")
