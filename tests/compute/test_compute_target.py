"""Spark writes into a shard, whatever of the Blob store it can open: all rows arrive, or nothing is appended."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compute_kit import ForeignPaths, Pathless

from mzsql.compute.engines.executors import place_for_executors
from mzsql.compute.engines.relations import arrow_frame
from mzsql.compute.engines.spark_session import hydration_session
from mzsql.compute.replica import target as target_module
from mzsql.compute.replica.target import Target, by_worker_and_key, is_local, with_time
from mzsql.location import UsageError, open_blob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import WORKER_COLUMN, KeySpec, PersistClient, Settings
from mzsql.repr.errors import InternalError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.decimal128(12, 2))])
ROWS = 3000


@pytest.fixture(scope="module")
def session(spark):
    return hydration_session(spark, workers=2)


class Elsewhere(Pathless):
    """A Blob store whose paths mean another place to Spark."""

    def __init__(self, inner, place):
        super().__init__(inner)
        self._place = place

    def spark_path(self, key):
        return str(self._place / key)


class Keyed(Target):
    workers = 3

    def arrange(self, frame):
        return by_worker_and_key(frame, "pmod(k, 3)", 3, ["k"])


def updates():
    keys = pa.array([*range(ROWS - 1), None], pa.int64())
    return pa.table(
        {
            "k": pc.coalesce(keys, pa.scalar(0, pa.int64())),
            "ts": keys.cast(pa.timestamp("us")),
            "n": keys.cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
            "mz_time": pa.array([n % 5 for n in range(ROWS)], pa.int64()),
            "mz_diff": pa.array([1] * ROWS, pa.int64()),
        },
        schema=with_time(SCHEMA),
    )


def opened(blob, url, *, keyed=False):
    settings = Settings(inline_bytes=0, inline_total_bytes=0)
    persist = PersistClient(blob, MemConsensus(), settings=settings, background=False, blob_url=url)
    shard = persist.new_shard_id()
    key = KeySpec(columns=("k",), workers=3) if keyed else None
    writer, reader = persist.open_shard(shard, SCHEMA, key=key)
    kind = Keyed if keyed else Target
    return kind(persist, shard, SCHEMA, writer, 30.0), reader


def kept(blob):
    return sorted(key for key, _ in blob.list_keys_and_metadata(""))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    "way", ["path", "streamed", pytest.param("executors", marks=pytest.mark.long)]
)
def test_what_spark_writes_is_what_the_shard_has(session, tmp_path, monkeypatch, way, keyed):
    url = f"file:{tmp_path}/blob"
    blob = open_blob(url)
    seen = blob if way == "path" else ForeignPaths(blob)
    assert is_local(session)
    if way == "executors":
        monkeypatch.setattr(target_module, "is_local", lambda _: False)
    target, reader = opened(seen, url, keyed=keyed)
    table = updates()
    upper, rows = target.adopt(arrow_frame(session, table).repartition(4), 0, 5, rows=ROWS)
    assert (upper, rows) == (5, ROWS)
    found = reader.updates(0, 5).select(table.column_names).cast(table.schema)
    order = [(name, "ascending") for name in table.column_names]
    assert found.sort_by(order).equals(table.sort_by(order))
    parts = reader.parts(4)
    assert kept(blob) == sorted(part.blob_key for part in parts)
    if keyed:
        assert {part.worker for part in parts} == {0, 1, 2}
        for part in parts:
            keys = part.to_arrow()["k"].to_pylist()
            assert keys == sorted(keys)
            assert {key % 3 for key in keys} == {part.worker}
    assert WORKER_COLUMN not in parts[0].to_arrow().column_names


@pytest.mark.parametrize("way", ["path", "executors"])
def test_a_write_of_no_rows_appends_nothing_and_leaves_nothing(session, tmp_path, monkeypatch, way):
    url = f"file:{tmp_path}/blob"
    blob = open_blob(url)
    if way == "executors":
        monkeypatch.setattr(target_module, "is_local", lambda _: False)
    target, reader = opened(blob if way == "path" else Pathless(blob), url)
    assert target.adopt(arrow_frame(session, updates().slice(0, 0)), 0, 5) == (5, 0)
    assert reader.updates(0, 5).num_rows == 0
    assert kept(blob) == []


def test_rows_written_to_another_place_are_missed(session, tmp_path):
    blob = open_blob(f"file:{tmp_path}/blob")
    target, reader = opened(Elsewhere(blob, tmp_path / "other"), None)
    with pytest.raises(InternalError, match=f"wrote {ROWS} rows, and 0 are in") as raised:
        target.adopt(arrow_frame(session, updates()), 0, 5)
    assert "endpoint" in raised.value.hint
    assert reader.fetch_upper() == 0
    assert kept(blob) == []


def test_a_failed_write_of_executors_leaves_nothing(session, tmp_path, monkeypatch):
    url = f"file:{tmp_path}/blob"
    blob = open_blob(url)
    monkeypatch.setattr(target_module, "is_local", lambda _: False)
    target, reader = opened(Pathless(blob), url)
    # the second partition has a row that fails, after the first has written its object
    failing = arrow_frame(session, updates()).selectExpr(
        f"IF(k = {ROWS - 2}, raise_error('no'), k) AS k", "ts", "n", "mz_time", "mz_diff"
    )
    with pytest.raises(Exception, match="no"):
        target.adopt(failing.coalesce(1), 0, 5)
    assert reader.fetch_upper() == 0
    assert kept(blob) == []


def test_another_machine_cannot_write_into_this_process(session, monkeypatch):
    monkeypatch.setattr(target_module, "is_local", lambda _: False)
    for url, message in (("mem:", "memory of this process"), (None, "not opened by URL")):
        target, _ = opened(MemBlob(), url)
        with pytest.raises(UsageError, match=message):
            target.adopt(arrow_frame(session, updates()), 0, 5)


def test_a_secret_is_named_by_its_profile(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    url = "store://me:hush@host/bucket"
    with pytest.raises(UsageError, match="holds a secret") as raised:
        place_for_executors(url, "shard x")
    assert "hush" not in str(raised.value)
    monkeypatch.setenv("MZSQL_PROFILE_PROD_BLOB", url)
    assert place_for_executors(url, "shard x") == "profile:prod"
    assert (
        place_for_executors("store://host/bucket?region=x", "y") == "store://host/bucket?region=x"
    )
