"""What writers and readers of a shard promise, on memory and on files + SQLite."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from persist_model import (
    SCHEMA,
    ManualClock,
    blobs,
    counted,
    expected_at,
    mem_client,
    referenced,
    updates,
)

from mzsql.location import UsageError
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemConsensus
from mzsql.location.sqlite import SqliteConsensus
from mzsql.persist import (
    Batch,
    BlobPart,
    CorruptPart,
    ExpiredHandle,
    ForeignBlob,
    InlinePart,
    InvalidBounds,
    MissingPart,
    NewerVersion,
    PersistClient,
    ReadTimeout,
    SchemaMismatch,
    Settings,
    ShardFinalized,
    ShardHeld,
    SinceViolation,
    SnapshotSplit,
    UpperMismatch,
)
from mzsql.repr.errors import Fenced, SqlError

ROWS = [(1, "a", 0, 1), (2, None, 1, 1), (1, "a", 2, -1), (None, "b", 2, 2)]
OUT_OF_LINE = Settings(inline_bytes=0)


def opened(client, rows=ROWS, upper=3):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates(rows), expected_upper=0, new_upper=upper)
    return write, read


def test_a_shard_is_made_with_its_reader_and_since_in_one_write(client):
    shard = client.new_shard_id()
    write, read = client.open_shard(shard, SCHEMA, since=2, purpose="made for it")
    assert len(client.consensus.scan(shard, 0, 100)) == 1
    write.compare_and_append(updates(ROWS), expected_upper=0, new_upper=3)
    assert read.since == client.inspect(shard).since == 2
    assert client.inspect(shard).readers[read.reader_id].purpose == "made for it"
    other = PersistClient(client.blob, client.consensus, background=False)
    _, later = other.open_shard(shard, SCHEMA, since=1)
    assert later.since == 2, "a shard that is there keeps its own"
    assert counted(later.snapshot_arrow(2)) == expected_at(ROWS, 2)
    with pytest.raises(SinceViolation):
        read.snapshot_arrow(1)
    with pytest.raises(InvalidBounds, match="the since of a new shard"):
        client.open_shard(client.new_shard_id(), SCHEMA, since=-1)
    other.close()


def test_snapshots_at_each_time(client):
    write, read = opened(client)
    assert (write.upper, read.since) == (3, 0)
    for as_of in range(3):
        assert counted(read.snapshot_arrow(as_of)) == expected_at(ROWS, as_of)
    assert read.snapshot_arrow(2).schema.names == ["k", "v", "mz_time", "mz_diff"]
    assert read.snapshot_arrow(2, columns=["v"]).column("v").to_pylist().count("b") == 1


def test_upper_mismatch_tells_the_upper_and_writes_nothing(client):
    write, read = opened(client)
    before = client.inspect(write.shard_id), blobs(client)
    with pytest.raises(UpperMismatch) as caught:
        write.compare_and_append(updates([(9, "z", 5, 1)]), expected_upper=5, new_upper=6)
    assert caught.value.current == write.upper == 3
    assert isinstance(caught.value, SqlError)
    assert (client.inspect(write.shard_id), blobs(client)) == before
    write.compare_and_append(None, expected_upper=3, new_upper=10)
    assert read.upper == 10
    assert counted(read.snapshot_arrow(9)) == expected_at(ROWS, 9)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([(1, "a", 2, 1)], InvalidBounds),
        ([(1, "a", 5, 1)], InvalidBounds),
        ([(1, "a", None, 1)], SchemaMismatch),
        ([(1, "a", 3, None)], SchemaMismatch),
    ],
)
def test_bad_updates_leave_the_state(client, rows, error):
    write, _ = opened(client)
    before = client.inspect(write.shard_id), blobs(client)
    with pytest.raises(error):
        write.compare_and_append(updates(rows), expected_upper=3, new_upper=5)
    assert (client.inspect(write.shard_id), blobs(client)) == before


def test_bad_schemas(client):
    write, _ = opened(client)
    good = updates([(1, "a", 3, 1)])
    for bad, text in [
        (good.drop_columns(["v"]), 'lacks the column "v"'),
        (good.append_column("w", pa.array([1])), 'a column "w" that the shard lacks'),
        (good.set_column(0, "k", pa.array(["1"])), "of type string but the shard has int64"),
    ]:
        with pytest.raises(SchemaMismatch, match=text):
            write.compare_and_append(bad, expected_upper=3, new_upper=4)
    with pytest.raises(SchemaMismatch, match="another schema"):
        client.open_shard(write.shard_id, pa.schema([("other", pa.int64())]))
    for schema in (
        pa.schema([("mz_time", pa.int64())]),
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([("a", pa.null())]),
        pa.schema([("a", pa.dictionary(pa.int32(), pa.string()))]),
    ):
        with pytest.raises(SchemaMismatch):
            client.open_shard(client.new_shard_id(), schema)
    wide = good.set_column(1, "v", good["v"].cast(pa.large_string()))
    write.compare_and_append(wide, expected_upper=3, new_upper=4)  # widths are interchangeable
    with pytest.raises(UsageError):
        client.open_shard("not-a-shard", SCHEMA)
    with pytest.raises(InvalidBounds):
        write.compare_and_append(None, expected_upper=4, new_upper=2)
    with pytest.raises(MissingPart):
        client.open_reader(client.new_shard_id())


def test_not_null_columns():
    client = mem_client()
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    write, _ = client.open_shard(client.new_shard_id(), schema)
    with pytest.raises(SchemaMismatch, match='NULL in column "k"'):
        write.compare_and_append(updates([(None, 0, 1)], schema), expected_upper=0, new_upper=1)


def test_reads_below_since_and_beyond_upper(client):
    _, read = opened(client)
    read.downgrade_since(2)
    assert client.inspect(read.shard_id).since == 2
    with pytest.raises(SinceViolation) as caught:
        read.snapshot_arrow(1)
    assert (caught.value.as_of, caught.value.since) == (1, 2)
    with pytest.raises(SinceViolation):
        read.updates(2, 3)  # an update at 1 may have been advanced to 2
    with pytest.raises(InvalidBounds):
        read.downgrade_since(1)
    with pytest.raises(ReadTimeout, match=r"upper is \[3\]"):
        read.snapshot_arrow(3, timeout=0.02)
    assert counted(read.snapshot_arrow(2)) == expected_at(ROWS, 2)


def test_since_is_held_by_the_slowest(client):
    write, fast = opened(client)
    slow = client.open_reader(write.shard_id)
    hold = client.open_critical_reader(write.shard_id, "dataflow u1", token="me")
    fast.downgrade_since(2)
    assert client.inspect(write.shard_id).since == 0
    slow.downgrade_since(1)
    hold.downgrade_since(2)
    assert client.inspect(write.shard_id).since == 1
    slow.expire()
    slow.expire()
    assert client.inspect(write.shard_id).since == 1  # an expiry alone moves nothing
    fast.downgrade_since(2)
    assert client.inspect(write.shard_id).since == 2
    with pytest.raises(ExpiredHandle):
        slow.snapshot_arrow(2)
    thief = client.open_critical_reader(write.shard_id, "dataflow u1", token="other")
    assert thief.since == 2
    with pytest.raises(Fenced):
        hold.downgrade_since(2)
    with pytest.raises(Fenced):
        hold.release()
    thief.release()
    thief.release()
    assert client.inspect(write.shard_id).critical == {}


def test_waits_for_the_upper(client):
    write, read = opened(client)
    timer = threading.Timer(
        0.05, lambda: write.compare_and_append(None, expected_upper=3, new_upper=8)
    )
    timer.start()
    assert read.wait_for_upper(7, timeout=10) == 8
    timer.join()


def test_listen_is_exact(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    history = [(i, "x" * i, i, 1 if i % 3 else -1) for i in range(12)]
    for i in range(4):
        rows = history[i * 3 : i * 3 + 3]
        write.compare_and_append(updates(rows), expected_upper=i * 3, new_upper=i * 3 + 3)
    listen = read.listen(4)
    table, frontier = next(listen)
    assert frontier == 12
    assert counted(table) == {(k, v, t): d for k, v, t, d in history if t > 4}
    write.compare_and_append(updates([(99, None, 13, 1)]), expected_upper=12, new_upper=15)
    table, frontier = next(listen)
    assert (counted(table), frontier) == ({(99, None, 13): 1}, 15)
    write.compare_and_append(None, expected_upper=15, new_upper=None)
    table, frontier = next(listen)
    assert (table.num_rows, frontier) == (0, None)
    with pytest.raises(StopIteration):
        next(listen)
    assert counted(read.snapshot_arrow(10**9)).keys() == {
        (*r[:2], 10**9) for r in [*history, (99, None)]
    }
    with pytest.raises(UpperMismatch):
        write.compare_and_append(None, expected_upper=15, new_upper=20)
    with pytest.raises(ReadTimeout):
        next(opened(client)[1].listen(2, timeout=0.02))


def test_updates_keep_their_times(client):
    _, read = opened(client)
    assert counted(read.updates(0, 3)) == {(k, v, t): d for k, v, t, d in ROWS}
    assert counted(read.updates(1, 2)) == {(2, None, 1): 1}
    assert read.updates(2, 2).num_rows == 0
    assert read.updates(1, 3, columns=["v"]).column_names == ["v", "mz_time", "mz_diff"]


def test_append_by_several_writers_of_the_same_data(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    other = client.open_writer(write.shard_id)
    history = [(i, "d", i, 1) for i in range(10)]
    write.append(updates(history[:4]), lower=0, upper=4)
    other.append(updates(history[:7]), lower=0, upper=7)  # drops what is there
    write.append(updates(history[:5]), lower=0, upper=5)  # all of it is there
    write.append(updates(history[4:10]), lower=4, upper=10)
    assert counted(read.updates(0, 10)) == {(k, v, t): 1 for k, v, t, _ in history}
    with pytest.raises(InvalidBounds, match="gap"):
        write.append(updates([(1, "x", 12, 1)]), lower=12, upper=13)
    state = client.inspect(write.shard_id)
    assert blobs(client) == referenced(state)


def big_again(client, write):
    """The shard's own first batch with objects, as a batch to append once more at its upper."""
    [part] = [p for b in client.inspect(write.shard_id).trace for p in b.parts if hasattr(p, "key")]
    return Batch(write.shard_id, 0, 50, (part,)).rewrite_ts(50).to_bytes()


def test_batches_travel(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    big = client.__class__(
        client.blob, client.consensus, settings=OUT_OF_LINE, background=False
    ).open_writer(write.shard_id)
    batch = big.batch(updates([(1, "a", 0, 1), (2, "b", 0, 1)]), lower=0, upper=1)
    [part] = batch.parts
    assert isinstance(part, BlobPart)
    moved = Batch.from_bytes(batch.to_bytes()).rewrite_ts(42)
    assert moved.lower == 42
    small = write.batch(updates([(3, "c", 40, 1)]), lower=40, upper=41)
    assert isinstance(small.parts[0], InlinePart)
    with pytest.raises(InvalidBounds):
        write.compare_and_append_batch(moved, expected_upper=0, new_upper=42)
    write.compare_and_append_batch([small, moved], expected_upper=0, new_upper=50)
    assert counted(read.updates(0, 50)) == {
        (3, "c", 40): 1,
        (1, "a", 42): 1,
        (2, "b", 42): 1,
    }
    assert counted(read.snapshot_arrow(41)) == {(3, "c", 41): 1}
    with pytest.raises(UsageError, match="appended before"):
        write.compare_and_append_batch(
            Batch.from_bytes(big_again(client, write)), expected_upper=50, new_upper=51
        )
    with pytest.raises(UsageError, match="cannot be deleted"):
        write.delete_batch(moved)
    [ref] = [r for r in read.parts(49) if not r.inline]
    assert (ref.time_floor, ref.time_min, ref.time_max, ref.rows) == (42, 42, 42, 2)
    client.maintain(write.shard_id, full=True)
    assert counted(read.updates(42, 43)) == {(1, "a", 42): 1, (2, "b", 42): 1}
    unused = big.batch(updates([(9, "z", 60, 1)]), lower=60, upper=61)
    big.delete_batch(unused)
    assert not set(unused.blob_keys()) & blobs(client)
    foreign, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    with pytest.raises(ForeignBlob):
        foreign.compare_and_append_batch(unused, expected_upper=0, new_upper=100)
    with pytest.raises(UsageError):
        moved.rewrite_ts(7).rewrite_ts(-1)


def test_inline_overflow_goes_to_blob():
    client = mem_client(inline_total_bytes=4096, compaction_fanout=1000, max_batches=1000)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(40):
        write.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
    state = client.inspect(write.shard_id)
    assert 0 < state.inline_size <= 4096
    assert blobs(client) == referenced(state)
    assert len(blobs(client)) > 10
    assert read.snapshot_arrow(39).num_rows == 40


def test_readers_and_tables_in_pieces(client):
    """A RecordBatchReader with empty batches in between, and parts of bounded size."""
    small = PersistClient(
        client.blob, client.consensus, settings=Settings(part_bytes=4096), background=False
    )
    write, read = small.open_shard(small.new_shard_id(), SCHEMA)
    table = updates([(i, f"value {i}", 0, 1) for i in range(2000)])
    empty = table.slice(0, 0)
    pieces = pa.concat_tables([empty, table.slice(0, 700), empty, table.slice(700)])
    reader = pa.RecordBatchReader.from_batches(
        table.schema,
        [b for t in (empty, table.slice(0, 700), empty, table.slice(700)) for b in t.to_batches()],
    )
    write.compare_and_append(reader, expected_upper=0, new_upper=1)
    write.compare_and_append(
        pieces.set_column(2, table.schema.field(2), pa.array([1] * 2000)),
        expected_upper=1,
        new_upper=2,
    )
    parts = small.inspect(write.shard_id).trace[0].parts
    assert len(parts) > 5
    assert all(isinstance(p, BlobPart) for p in parts)
    assert counted(read.snapshot_arrow(1)) == {(i, f"value {i}", 1): 2 for i in range(2000)}


def test_snapshot_splits_travel(tmp_path):
    url = f"file:{tmp_path}/blob"
    client = PersistClient.open(
        blob=url, consensus=f"sqlite:{tmp_path}/c.db", settings=OUT_OF_LINE, background=False
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(3):
        rows = [(j, "s", i, 1) for j in range(5)]
        write.compare_and_append(updates(rows), expected_upper=i, new_upper=i + 1)
    splits = read.snapshot(2, 2)
    assert len(splits) == 2
    total = {}
    for split in splits:
        received = SnapshotSplit.from_bytes(split.to_bytes())
        for row, diff in counted(received.to_arrow()).items():
            total[row] = total.get(row, 0) + diff
        for path in split.spark_paths():
            assert pq.read_table(path).column_names == ["k", "v", "mz_time", "mz_diff"]
        assert split.inline_table().num_rows == 0
    assert total == {(j, "s", 2): 3 for j in range(5)}
    assert sum(len(s.spark_paths()) for s in splits) == 3
    assert len(read.snapshot(2, 10)) == 10
    client.close()


def test_adopted_parts(tmp_path):
    client = PersistClient(FileBlob(tmp_path), MemConsensus(), background=False)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    prefix = write.part_prefix()
    directory = client.blob.spark_path(prefix)
    (tmp_path / prefix).mkdir(parents=True)
    pq.write_table(updates([(1, "a", 3, 1), (2, None, 4, 1)]), f"{directory}/one.parquet")
    pq.write_table(updates([]), f"{directory}/none.parquet")
    pq.write_table(updates([(1, "a", 9, 1)]), f"{directory}/late.parquet")
    keys = [f"{prefix}/one.parquet", f"{prefix}/none.parquet"]
    batch = write.adopt_parts(keys, lower=0, upper=5)
    assert [p.key for p in batch.parts] == keys[:1]
    assert keys[1] not in blobs(client)
    with pytest.raises(InvalidBounds, match=r"late\.parquet"):
        write.adopt_parts([f"{prefix}/late.parquet"], lower=0, upper=5)
    with pytest.raises(MissingPart):
        write.adopt_parts([f"{prefix}/absent.parquet"], lower=0, upper=5)
    with pytest.raises(ForeignBlob):
        write.adopt_parts(["elsewhere/one.parquet"], lower=0, upper=5)
    (tmp_path / prefix / "no.parquet").write_text("not Parquet")
    with pytest.raises(CorruptPart):
        write.adopt_parts([f"{prefix}/no.parquet"], lower=0, upper=5)
    pq.write_table(updates([(1, "a", 3, 1)]).drop_columns(["v"]), f"{directory}/narrow.parquet")
    with pytest.raises(SchemaMismatch):
        write.adopt_parts([f"{prefix}/narrow.parquet"], lower=0, upper=5)
    write.compare_and_append_batch(batch, expected_upper=0, new_upper=5)
    assert counted(read.updates(0, 5)) == {(1, "a", 3): 1, (2, None, 4): 1}


def test_corruption_and_loss_are_found(tmp_path):
    client = PersistClient(
        FileBlob(tmp_path), MemConsensus(), settings=OUT_OF_LINE, background=False
    )
    _, read = opened(client)
    [ref] = read.parts(2)
    path = tmp_path / ref.blob_key
    good = path.read_bytes()
    for at in (len(good) // 3, len(good) - 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        with pytest.raises(CorruptPart, match="checksum"):
            read.snapshot_arrow(2)
    path.write_bytes(good[:-1])
    with pytest.raises(CorruptPart):
        read.snapshot_arrow(2)
    path.unlink()
    with pytest.raises(MissingPart, match=ref.blob_key):
        read.snapshot_arrow(2)
    path.write_bytes(good)
    assert counted(read.snapshot_arrow(2)) == expected_at(ROWS, 2)


def test_leases_run_out_by_the_clock_of_who_watches():
    client = mem_client(reader_lease_ms=1000)
    write, read = opened(client)
    idle = client.open_reader(write.shard_id)
    clock = client._context.clock
    assert isinstance(clock, ManualClock)
    for _ in range(4):
        clock.ms += 400
        read.heartbeat()
    assert idle.reader_id not in client.inspect(write.shard_id).readers
    for act in (lambda: idle.snapshot_arrow(2), lambda: idle.downgrade_since(2), idle.heartbeat):
        with pytest.raises(ExpiredHandle):
            act()
    clock.ms += 300
    assert counted(read.snapshot_arrow(2)) == expected_at(ROWS, 2)  # a due heartbeat went first
    clock.ms += 900
    client.open_reader(write.shard_id)
    assert read.reader_id in client.inspect(write.shard_id).readers


def test_finalize(client):
    write, read = opened(client)
    other = PersistClient(client.blob, client.consensus, background=False)
    stale = other.open_reader(write.shard_id)
    big = other.open_writer(write.shard_id)
    big.compare_and_append(
        updates([(i, "y" * 500, 3, 1) for i in range(500)]), expected_upper=3, new_upper=4
    )
    assert blobs(client)
    with pytest.raises(ShardHeld, match=stale.reader_id) as held:
        client.finalize(write.shard_id)
    assert [(h.kind, h.since) for h in held.value.holders] == [("reader", 0)]
    hold = other.open_critical_reader(write.shard_id, "export", purpose="nightly")
    assert client.inspect(write.shard_id).upper == 4
    stale.expire()
    with pytest.raises(ShardHeld, match=r"critical reader export \(since \[0\], nightly\)"):
        client.finalize(write.shard_id)
    assert counted(read.snapshot_arrow(2)) == expected_at(ROWS, 2)
    hold.release()
    client.finalize(write.shard_id)
    client.finalize(write.shard_id)
    assert blobs(client) == set()
    assert len(client.consensus.scan(write.shard_id, 0, 100)) == 1
    state = other.inspect(write.shard_id)
    assert state.finalized
    with pytest.raises(ShardFinalized):
        client.open_reader(write.shard_id)
    with pytest.raises(ShardFinalized):
        read.snapshot_arrow(2)
    with pytest.raises((ShardFinalized, ExpiredHandle)):
        stale.downgrade_since(3)
    with pytest.raises(UpperMismatch) as caught:
        write.compare_and_append(updates([(1, "a", 4, 1)]), expected_upper=4, new_upper=5)
    assert caught.value.current is None
    fresh = PersistClient(client.blob, client.consensus, background=False)
    assert fresh.exists(write.shard_id)
    assert fresh.inspect(write.shard_id).finalized
    with pytest.raises(ShardFinalized):
        fresh.open_reader(write.shard_id, SCHEMA)


def test_both_frontiers_empty_is_a_tombstone(client):
    write, read = opened(client)
    write.compare_and_append(None, expected_upper=3, new_upper=None)
    assert counted(read.snapshot_arrow(5)) == expected_at(ROWS, 5)
    read.downgrade_since(None)
    assert client.inspect(write.shard_id).finalized


def test_a_newer_format_is_refused_untouched(client):
    write, _ = opened(client)
    head = client.consensus.head(write.shard_id)
    newer = head.data[:4] + b"\x00\x63" + head.data[6:]
    assert client.consensus.compare_and_set(
        write.shard_id, head.seqno, head._replace(seqno=head.seqno + 1, data=newer)
    )
    fresh = PersistClient(client.blob, client.consensus, background=False)
    with pytest.raises(NewerVersion, match="format 99"):
        fresh.open_shard(write.shard_id, SCHEMA)
    with pytest.raises(NewerVersion):
        write.compare_and_append(None, expected_upper=3, new_upper=4)
    assert client.consensus.head(write.shard_id).seqno == head.seqno + 1


def test_close_ends_waits(tmp_path, monkeypatch):
    client = PersistClient.open(blob=f"file:{tmp_path}/b", consensus=f"sqlite:{tmp_path}/c.db")
    _, read = client.open_shard(client.new_shard_id(), SCHEMA)
    outcome, waits = [], threading.Event()
    wait = SqliteConsensus.wait

    def noticed(*args):
        waits.set()
        return wait(*args)

    monkeypatch.setattr(SqliteConsensus, "wait", noticed)

    def listen():
        try:
            outcome.append(list(read.listen(0)))
        except Exception as failure:
            outcome.append(failure)

    thread = threading.Thread(target=listen)
    thread.start()
    assert waits.wait(60)
    client.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(outcome[0], SqlError)


def test_background_maintenance_and_close(tmp_path):
    before = set(threading.enumerate())
    client = PersistClient.open(blob=f"file:{tmp_path}/b", consensus=f"sqlite:{tmp_path}/c.db")
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(40):
        write.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
    end = time.monotonic() + 60
    while len(client.inspect(write.shard_id).trace) > 10 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(client.inspect(write.shard_id).trace) <= 10
    assert read.snapshot_arrow(39).num_rows == 40
    client.close()
    client.close()
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.name == "mzsql-persist-maintenance"]
    with pytest.raises(ExpiredHandle):
        client.open_reader(write.shard_id)
    again = PersistClient.open(blob=f"file:{tmp_path}/b", consensus=f"sqlite:{tmp_path}/c.db")
    state = again.inspect(write.shard_id)
    assert (state.readers, state.writers) == ({}, {})
    assert again.open_reader(write.shard_id).snapshot_arrow(39).num_rows == 40
    again.close()


def test_a_reader_remembers_no_reads_that_are_over(client):
    _, read = opened(client)
    for _ in range(100):
        read.snapshot_arrow(2)
    lease = read._lease
    assert len(lease._leases) + len(lease._released) <= 2
