"""A machine that has no memory for another thread: who asked is told so, and it is nobody's bug."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.cli.reporting import report

#: A stack larger than what a process can address.
_TOO_LARGE = 1 << 47


@contextlib.contextmanager
def _no_thread_more() -> Iterator[None]:
    before = threading.stack_size(_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_who_asks_is_told_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        _no_thread_more(),
        pytest.raises(mzsql.OperationalError, match="could not be started: there is no") as met,
    ):
        mzsql.connect(tmp_path)
    assert met.value.sqlstate == "53000"
    assert report(met.value) == 1
    said = capsys.readouterr().err
    assert "let the process have more memory and threads" in said
    assert "bug" not in said
    with mzsql.connect(tmp_path) as con:
        con.execute("CREATE TABLE t (a int)")
        with (
            _no_thread_more(),
            pytest.raises(mzsql.OperationalError, match="could not be started: there is no"),
        ):
            con.execute("INSERT INTO t VALUES (1)")
        # There are threads again: nothing was left half done.
        con.execute("INSERT INTO t VALUES (2)")
        assert con.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_a_thread_that_others_start(capsys: pytest.CaptureFixture[str]) -> None:
    with _no_thread_more(), pytest.raises(RuntimeError) as met:
        threading.Thread(target=lambda: None).start()
    assert report(met.value) == 1
    said = capsys.readouterr().err
    assert said.startswith("ERROR:  a thread could not be started: there is no memory for it")
    assert "bug" not in said
