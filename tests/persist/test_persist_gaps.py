"""A log that lacks an entry: whoever reads the shard hears of it at once, and of no fast changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from mzsql.persist import MissingPart, PersistClient, Settings

SCHEMA = pa.schema([("c0", pa.int64())])


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    urls = {"blob": f"file:{tmp_path}/blob", "consensus": f"sqlite:{tmp_path}/consensus.db"}
    with PersistClient.open(**urls, background=False) as client:
        shard = client.new_shard_id()
        writer, _ = client.open_shard(shard, SCHEMA)
        for upper in range(1, 9):
            writer.compare_and_append(None, expected_upper=upper - 1, new_upper=upper)
    with closing(sqlite3.connect(tmp_path / "consensus.db")) as database, database:
        (seqnos,) = zip(
            *database.execute(
                "SELECT sequence_number FROM consensus WHERE shard = ? ORDER BY 1", (shard,)
            ).fetchall(),
            strict=True,
        )
        gone = seqnos[-3]
        database.execute(
            "DELETE FROM consensus WHERE shard = ? AND sequence_number = ?", (shard, gone)
        )
    # Longer than the test may take: it is not the deadline that ends the look.
    with (
        PersistClient.open(**urls, background=False, settings=Settings(timeout=3600)) as client,
        pytest.raises(MissingPart, match=f"entry {gone} of its log is missing"),
    ):
        client.open_reader(shard, SCHEMA)
