"""Committing to a table from outside what others have written ahead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mzsql
from mzsql.adapter.appender import TableAppender, as_table_rows, open_for_appending
from mzsql.persist import Batch
from mzsql.repr.errors import NotReadable

ROWS = 200_000
BATCHES = 4
PATIENCE = 60.0


@pytest.fixture
def env(tmp_path: Path) -> Path:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (n bigint)")
    return tmp_path / "env"


def written(appender: TableAppender, task: int) -> Batch:
    """What one task writes ahead: too much to stand in the shard's state."""
    item = appender.table("public.t")
    numbers = pa.array([(n * 7919 + task) % 1_000_003 for n in range(ROWS)])
    batches = [pa.record_batch({"n": numbers})]
    (rows,) = as_table_rows(item, batches)
    batch = appender.write_ahead(item.id, rows.to_reader())
    assert batch.blob_keys()
    return Batch.from_bytes(batch.to_bytes())


def test_objects_are_asked_for_side_by_side_while_others_use_the_table(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_appending(env) as tasks:
        writes = [written(tasks, n) for n in range(BATCHES)]
    keys = {key for batch in writes for key in batch.blob_keys()}
    with open_for_appending(env) as appender:
        gid = appender.table("public.t").id
        table = appender._env.collections.table(gid)
        blob = appender._env.persist.blob
        get_range = blob.get_range  # type: ignore[attr-defined]
        # Passed by two at once only.
        two, asked = threading.Barrier(2), list[str]()
        used = threading.Event()

        def use() -> None:
            table.apply([])
            used.set()

        def asking(key: str, *given: Any) -> Any:
            if key in keys and key not in asked:
                if not asked:
                    threading.Thread(target=use).start()
                asked.append(key)
                assert used.wait(PATIENCE)
                two.wait(PATIENCE)
            return get_range(key, *given)

        monkeypatch.setattr(blob, "get_range", asking)
        appender.commit(gid, writes)
        monkeypatch.undo()
    assert sorted(asked) == sorted(keys)
    with mzsql.connect(env) as con:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(BATCHES * ROWS,)]


def test_one_that_is_gone_of_many_is_told_and_nothing_is_written(env: Path) -> None:
    with open_for_appending(env) as tasks:
        writes = [written(tasks, n) for n in range(BATCHES)]
    gone = writes[2].blob_keys()[0]
    with open_for_appending(env) as appender:
        assert appender._env.persist.blob.delete(gone)
        with pytest.raises(NotReadable, match="nothing was written") as told:
            appender.commit(appender.table("public.t").id, writes)
        assert gone in str(told.value.detail)
    with mzsql.connect(env) as con:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
