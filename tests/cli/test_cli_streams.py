"""SUBSCRIBE and COPY on the command line: rows as they come, bytes as they are."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mzsql

WAIT = 120
_MZSQL = str(Path(sys.executable).with_name("mzsql"))


@pytest.fixture
def env(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (k int, v text)")
        con.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    return tmp_path / "env"


def command(*arguments):
    return [_MZSQL, "sql", *map(str, arguments)]


def run(*arguments, stdin=b""):
    done = subprocess.run(
        command(*arguments), input=stdin, capture_output=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_rows_come_as_they_happen_and_ctrl_c_ends_it(env):
    with subprocess.Popen(
        command("--env", env, "SUBSCRIBE t"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as shown:
        watchdog = threading.Timer(WAIT, shown.kill)
        watchdog.start()
        names = shown.stdout.readline().decode().split("|")
        assert [n.strip() for n in names] == ["mz_timestamp", "mz_diff", "k", "v"]
        assert set(shown.stdout.readline().decode().strip()) == {"-", "+"}
        rows = [[c.strip() for c in shown.stdout.readline().decode().split("|")][1:] for _ in "12"]
        assert rows == [["1", "1", "a"], ["1", "2", ""]]
        with mzsql.connect(env) as con:
            con.execute("DELETE FROM t WHERE k = 1")
        assert [c.strip() for c in shown.stdout.readline().decode().split("|")][1:] == [
            "-1",
            "1",
            "a",
        ]
        shown.send_signal(signal.SIGINT)
        rest, errors = shown.communicate(timeout=WAIT)
        watchdog.cancel()
        assert (rest.decode(), errors.decode(), shown.returncode) == ("(3 rows)\n\n", "", 0)


MANY = "SELECT * FROM generate_series(1, 200000) AS g(x)"


@pytest.mark.parametrize(
    "arguments",
    [
        (MANY,),
        ("SUBSCRIBE t",),
        *(
            pytest.param(seldom, marks=pytest.mark.long)
            for seldom in [("SELECT 1",), ("--csv", MANY), (f"COPY ({MANY}) TO STDOUT",)]
        ),
    ],
)
def test_a_reader_that_goes_away_ends_it_silently(env, arguments):
    with subprocess.Popen(
        command("--env", env, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as shown:
        watchdog = threading.Timer(WAIT, shown.kill)
        watchdog.start()
        if arguments != ("SELECT 1",):
            assert shown.stdout.readline()
        shown.stdout.close()
        if arguments == ("SUBSCRIBE t",):
            # it notices when it next has something to say
            with mzsql.connect(env) as con:
                con.execute("INSERT INTO t VALUES (7, 'x')")
        errors = shown.stderr.read()
        shown.wait(WAIT)
        watchdog.cancel()
        assert (errors.decode(), shown.returncode) == ("", 141)


def test_a_subscribe_that_ends_is_printed_whole(env):
    with mzsql.connect(env) as con:
        ts = con.execute("SELECT * FROM t").timestamp
    sql = f"SUBSCRIBE t AS OF {ts} UP TO {ts + 1}"
    assert run("--env", env, "--csv", sql) == f"mz_timestamp,mz_diff,k,v\n{ts},1,1,a\n{ts},1,2,\n"


@pytest.mark.long
def test_copy_writes_and_reads_bytes(env):
    out = "COPY (SELECT * FROM t ORDER BY k) TO STDOUT"
    assert run("--env", env, out) == "1\ta\n2\t\\N\n"
    given = b"3\tb\\tc\n4\t\\N\n"
    assert run("--env", env, "COPY t FROM STDIN", stdin=given) == "COPY 2\n"
    assert run("--env", env, "--csv", "COPY t FROM STDIN", stdin=b"") == ""
    assert run("--env", env, f"{out} WITH (FORMAT csv)") == "1,a\n2,\n3,b\tc\n4,\n"
