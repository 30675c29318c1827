"""Work that nobody wants any more ends, also where it waits for a backend."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.compute.replica.endings import UNWANTED_SECONDS, patience
from mzsql.location import Determinate
from mzsql.location.file import FileBlob


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_patience_is_without_end_until_nobody_wants_the_work() -> None:
    clock, gone = _Clock(), False
    left = patience(lambda: gone, clock)
    clock.sleep(1e5)
    assert left() > 86_400
    gone = True
    assert left() == UNWANTED_SECONDS
    clock.sleep(UNWANTED_SECONDS / 2)
    assert left() == UNWANTED_SECONDS / 2
    clock.sleep(UNWANTED_SECONDS)
    assert left() == 0


@pytest.mark.soak
@pytest.mark.timeout(50)
def test_a_hydration_that_a_store_holds_up_ends_with_its_environment(
    tmp_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The timeout is the test's, below the minute that a write may take by itself.
    tried, full = threading.Event(), threading.Event()
    put = FileBlob.set

    def refuse(self: FileBlob, *args: Any, **more: Any) -> None:
        if full.is_set():
            tried.set()
            raise Determinate("no space left")
        put(self, *args, **more)

    monkeypatch.setattr(FileBlob, "set", refuse)
    con = mzsql.connect(str(tmp_env))
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    con.execute("CREATE TABLE t (k bigint, v bigint)")
    con.execute("INSERT INTO t SELECT g, g % 1000 FROM generate_series(1, 50000) AS s (g)")
    full.set()
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a.k FROM t AS a JOIN t AS b ON a.k = b.v")
    tried.wait()
    con.close()
    full.clear()
    with mzsql.connect(str(tmp_env)) as again:
        expected = [(sum(1 for g in range(1, 50001) if g % 1000 != 0),)]
        assert again.execute("SELECT count(*) FROM v").fetchall() == expected
