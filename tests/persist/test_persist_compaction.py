"""What compaction writes, what it leaves to other processes, and what it does about broken batches and little time."""

from __future__ import annotations

import itertools
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from persist_model import (
    SCHEMA,
    another,
    blobs,
    counted,
    expected_at,
    mem_client,
    referenced,
    updates,
)

from mzsql.location import Determinate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    CorruptPart,
    KeySpec,
    MissingPart,
    PersistClient,
    Settings,
)
from mzsql.persist.batch import InlinePart
from mzsql.persist.columns import physical
from mzsql.persist.compaction import choose, sort_by_columns
from mzsql.persist.spill import spill_directory
from mzsql.persist.state import ShardState, TraceBatch
from mzsql.repr.errors import DataError

WIDE = pa.schema(
    [
        ("d", pa.date32()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int32())),
        ("n", pa.decimal128(12, 2)),
        ("f", pa.float64()),
        ("b", pa.bool_()),
    ]
)


def filled(client, count, schema=SCHEMA, row=None, key=None):
    """Handles of a new shard of ``count`` batches, one update each, and its history; nothing maintained yet."""
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    history = []
    changed = write._opened.changed
    write._opened.changed = lambda *_: None
    for i in range(count):
        rows = [(i, f"v{i}", i, 1)] if row is None else row(i)
        write.compare_and_append(updates(rows, schema), expected_upper=i, new_upper=i + 1)
        history += rows
    write._opened.changed = changed
    return write, read, history


def in_blob(client, key):
    return pq.read_table(pa.BufferReader(client.blob.get(key)))


# --- what it writes ---------------------------------------------------------------------------


def _wide_rows(count, seed):
    rng = random.Random(seed)
    return pa.table(
        {
            "d": pa.array([rng.choice([None, *range(9)]) for _ in range(count)], pa.date32()),
            "s": [rng.choice([None, "", "a", "b" * 70]) for _ in range(count)],
            "l": pa.array(
                [rng.choice([None, [], [1, None]]) for _ in range(count)], WIDE.field("l").type
            ),
            "n": pa.array([rng.randrange(50) for _ in range(count)])
            .cast(pa.decimal128(21, 0))
            .cast(WIDE.field("n").type),
            "f": [rng.choice([None, 0.0, -1.5, float("inf")]) for _ in range(count)],
            "b": [rng.choice([None, True, False]) for _ in range(count)],
        },
        schema=WIDE,
    )


@pytest.mark.parametrize("part_bytes", [64 * 2**20, 2**18], ids=["in memory", "by DuckDB"])
def test_a_merge_without_key_is_sorted_by_its_columns(part_bytes):
    client = mem_client(inline_bytes=0, part_bytes=part_bytes, row_group_rows=500)
    write, read = client.open_shard(client.new_shard_id(), WIDE)
    for i in range(3):
        table = _wide_rows(3000, i)
        table = table.append_column("mz_time", pa.array([i] * 3000, pa.int64()))
        table = table.append_column("mz_diff", pa.array([1] * 3000, pa.int64()))
        write.compare_and_append(table, expected_upper=i, new_upper=i + 1)
    read.downgrade_since(1)
    before = read.snapshot_arrow(2)
    client.maintain(write.shard_id, full=True)
    [batch] = client.inspect(write.shard_id).trace
    assert (batch.consolidated, batch.since, batch.diffs) == (True, 1, 9000)
    written = pa.concat_tables([in_blob(client, key) for key in batch.blob_keys])
    assert written.schema.equals(physical(WIDE))
    with duckdb.connect() as connection:
        connection.register("written", written)
        connection.register("before", before)
        ordered = connection.sql(
            "SELECT * FROM written ORDER BY d NULLS LAST, s NULLS LAST, l NULLS LAST, n NULLS LAST,"
            " f NULLS LAST, b NULLS LAST, mz_time"
        ).to_arrow_table()
        names = (
            [n for n in written.column_names if n != "l"]
            if len(batch.parts) == 1
            else written.column_names
        )
        if len(batch.parts) > 1:
            assert ordered.to_pylist() == written.to_pylist()
        again = sort_by_columns(written)
        assert [r[:2] for r in zip(*(again[n].to_pylist() for n in names), strict=True)] == [
            r[:2] for r in zip(*(written[n].to_pylist() for n in names), strict=True)
        ]
        differing = connection.sql(
            "SELECT count(*) FROM (SELECT d, s, l, n, f, b, sum(mz_diff) AS c FROM written GROUP BY ALL"
            " EXCEPT SELECT d, s, l, n, f, b, sum(mz_diff) AS c FROM before GROUP BY ALL)"
        ).fetchall()
    assert differing == [(0,)]
    # Least and greatest values of row groups tell them apart.
    footer = pq.read_metadata(pa.BufferReader(client.blob.get(batch.blob_keys[0])))
    groups = [footer.row_group(i).column(0).statistics for i in range(footer.num_row_groups)]
    assert footer.num_row_groups > 2
    bounds = [(g.min, g.max) for g in groups if g.has_min_max]
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))


def test_large_merges_get_so_much_memory_and_leave_no_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []
    connect = duckdb.connect

    def watched(*args, **kwargs):
        config = kwargs.get("config", {})
        if "temp_directory" in config:
            seen.append(config)
            assert Path(config["temp_directory"]).parent == tmp_path
        return connect(*args, **kwargs)

    monkeypatch.setattr(duckdb, "connect", watched)
    client = mem_client(
        inline_bytes=0, part_bytes=2000, compaction_memory_bytes=2**25, compaction_threads=1
    )
    write, read, history = filled(client, 40)
    client.maintain(write.shard_id, full=True)
    assert seen[0]["memory_limit"] == f"{2**25}B"
    assert seen[0]["threads"] == 1
    assert list(tmp_path.iterdir()) == []
    assert counted(read.snapshot_arrow(39)) == expected_at(history, 39)


def test_what_a_killed_process_spilled_is_removed_by_the_next_merge(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = "import os\nfrom mzsql.persist.spill import spill_directory\nwith spill_directory():\n    os._exit(9)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert killed.returncode == 9
    [left] = tmp_path.iterdir()
    with spill_directory() as one, spill_directory() as other:
        assert not left.exists()
        assert Path(one).exists()
        assert one != other
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part_bytes", [64 * 2**20, 64], ids=["in memory", "by DuckDB"])
def test_sums_that_do_not_fit_leave_the_batches_and_everything_else_goes_on(part_bytes):
    client = mem_client(inline_bytes=0, part_bytes=part_bytes)
    write, read, _ = filled(client, 4, row=lambda i: [(1, "a", i, 2**62)])
    read.downgrade_since(3)
    with pytest.raises(DataError, match="do not fit"):
        client.maintain(write.shard_id)
    state = client.inspect(write.shard_id)
    assert len(state.trace) == 4
    assert blobs(client) == referenced(state)
    write.compare_and_append(updates([(1, "a", 4, -(2**62))] * 3), expected_upper=4, new_upper=5)
    read.downgrade_since(4)
    client.maintain(write.shard_id, full=True)
    assert counted(read.snapshot_arrow(4)) == {(1, "a", 4): 2**62}


# --- broken batches ---------------------------------------------------------------------------


def _break(client, key, how):
    if how == "missing":
        client.blob.delete(key)
    else:
        client.blob.set(key, client.blob.get(key)[:-9] + b"123456789")


@pytest.mark.parametrize("part_bytes", [64 * 2**20, 64], ids=["in memory", "by DuckDB"])
@pytest.mark.parametrize("how", ["missing", "corrupt"])
def test_a_broken_part_is_said_once_and_stops_nothing_else(how, part_bytes, caplog):
    client = mem_client(
        inline_bytes=0, compaction_fanout=3, rollup_interval=10, part_bytes=part_bytes
    )
    write, read, history = filled(client, 12)
    bad = client.inspect(write.shard_id).trace[5]
    good = client.blob.get(bad.blob_keys[0])
    _break(client, bad.blob_keys[0], how)
    error = MissingPart if how == "missing" else CorruptPart
    with caplog.at_level(logging.ERROR, "mzsql.persist"):
        for i in range(12, 60):
            row = (i, "w", i, 1)
            write.compare_and_append(updates([row]), expected_upper=i, new_upper=i + 1)
            history.append(row)
    said = [record for record in caplog.records if bad.blob_keys[0] in record.getMessage()]
    assert len(said) == 1
    state = client.inspect(write.shard_id)
    # It stands where it was; what is beside it was merged, the log was cut, and nothing leaks.
    assert bad in state.trace
    assert len(state.trace) < 20
    assert len(client.consensus.scan(write.shard_id, 0, 1000)) <= 40
    assert {k for k in referenced(state) if k != bad.blob_keys[0]} == blobs(client) - {
        bad.blob_keys[0]
    }
    # Whoever asks for maintenance is told, after everything else was done.
    with pytest.raises(error, match=bad.blob_keys[0]):
        client.maintain(write.shard_id, full=True)
    with pytest.raises(error):
        read.snapshot_arrow(59)
    # Restored, it is merged with the rest.
    client.blob.set(bad.blob_keys[0], good)
    client.maintain(write.shard_id, full=True)
    client.maintain(write.shard_id, full=True)
    assert len(client.inspect(write.shard_id).trace) == 1
    assert counted(read.snapshot_arrow(59)) == expected_at(history, 59)


# --- which process ----------------------------------------------------------------------------


def _merges(log):
    """Have ``log`` told of each merge that the client begins."""
    from mzsql.persist import shard_maintenance

    apply = shard_maintenance.apply_merge

    def told(opened, state, run, deadline):
        log.append((opened.context, tuple(batch.id for batch in run)))
        return apply(opened, state, run, deadline)

    return told


def test_processes_in_turn_merge_nothing_twice(monkeypatch):
    from mzsql.persist import shard_maintenance

    first = mem_client(inline_bytes=0)
    clients = [first, another(first, inline_bytes=0), another(first, inline_bytes=0)]
    for number, client in enumerate(clients):
        client._context.rng.seed(number)
    shard_id = first.new_shard_id()
    writers = [client.open_writer(shard_id, SCHEMA) for client in clients]
    begun = []
    monkeypatch.setattr(shard_maintenance, "apply_merge", _merges(begun))
    for i in range(64):
        row = updates([(i, "v", i, 1)])
        writers[i % 3].compare_and_append(row, expected_upper=i, new_upper=i + 1)
        for writer in writers:  # each looks whether something is due, as it does after any call
            writer.fetch_upper()
            writer._opened.changed(writer._opened)
    inputs = [run for _, run in begun]
    assert len(inputs) == len(set(inputs)) == 16 + 4 + 1
    assert len({id(context) for context, _ in begun}) == 3  # each does its share
    assert len(first.inspect(shard_id).trace) == 1


def test_a_merge_is_taken_over_from_a_process_that_is_gone():
    client = mem_client(inline_bytes=0)
    write, _, _ = filled(client, 4)  # completed a tier, and never merges it
    heir = another(client, inline_bytes=0)
    after = heir.open_writer(write.shard_id)
    for i in range(4, 4 + 9):
        after.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
    assert len(heir.inspect(write.shard_id).trace) <= 4
    # Also where nothing is appended any more, after some changes of any kind.
    write, _, _ = filled(client, 4)
    reader = heir.open_reader(write.shard_id)
    for i in range(40):
        reader.downgrade_since(min(i, 3))
    assert len(heir.inspect(write.shard_id).trace) == 1


def test_rollups_and_collection_are_one_processs_too():
    client = mem_client(rollup_interval=10)
    other = another(client, rollup_interval=10)
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    idle = other.open_writer(write.shard_id)
    puts = []
    put = client.blob.set
    client.blob.set = lambda key, value: (puts.append(key), put(key, value))
    for i in range(60):
        write.compare_and_append(None, expected_upper=i, new_upper=i + 1)
        idle.fetch_upper()
        idle._opened.changed(idle._opened)
    assert len([key for key in puts if "rollup" in key]) in range(4, 8)
    assert len(client.consensus.scan(write.shard_id, 0, 1000)) <= 25
    assert len(blobs(client)) == 1
    # The other one takes over from a process that never does it.
    write._opened.changed = lambda *_: None
    for i in range(60, 90):
        write.compare_and_append(None, expected_upper=i, new_upper=i + 1)
        idle.fetch_upper()
        idle._opened.changed(idle._opened)
    assert len(client.consensus.scan(write.shard_id, 0, 1000)) <= 35


# --- since ------------------------------------------------------------------------------------


def test_what_nobody_can_ever_read_becomes_garbage_at_once():
    client = mem_client(inline_bytes=0, rollup_interval=20)
    write, read, _ = filled(client, 3)
    read.downgrade_since(None)
    assert client.inspect(write.shard_id).trace == ()
    read.expire()
    for i in range(3, 200):
        write.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
        state = client.inspect(write.shard_id)
        assert state.trace == ()
        assert len(blobs(client)) <= 60
    client.maintain(write.shard_id)
    assert blobs(client) == set(client.inspect(write.shard_id).rollups.values())
    assert len(client.consensus.scan(write.shard_id, 0, 1000)) <= 3
    write.compare_and_append(None, expected_upper=200, new_upper=None)
    assert client.inspect(write.shard_id).finalized
    assert blobs(client) == set()


def test_a_batch_that_since_left_behind_is_rewritten_logarithmically():
    client = mem_client(inline_bytes=0)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    span = 1000
    rows = [(1, "v", t, 1 if t % 2 == 0 else -1) for t in range(span)]
    write.compare_and_append(updates(rows), expected_upper=0, new_upper=span)
    sizes = set()
    for since in range(1, span, 5):
        read.downgrade_since(since)
        [batch] = client.inspect(write.shard_id).trace or [None]
        sizes.add(None if batch is None else (batch.id, batch.rows))
        at = counted(read.snapshot_arrow(since))
        assert at == expected_at(rows, since)
    read.downgrade_since(span + 5)
    assert client.inspect(write.shard_id).trace == ()  # as much was taken away as was there
    assert 2 <= len(sizes) <= 8


def test_a_batch_of_which_little_would_vanish_is_left_alone():
    client = mem_client(inline_bytes=0)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    rows = [(t, "v", t, 1) for t in range(1000)]
    write.compare_and_append(updates(rows), expected_upper=0, new_upper=1000)
    client.maintain(write.shard_id, full=True)
    [batch] = client.inspect(write.shard_id).trace
    for since in range(0, 1100, 50):
        read.downgrade_since(since)
    assert client.inspect(write.shard_id).trace == (batch,)
    client.maintain(write.shard_id, full=True)  # asked for, it is done
    assert client.inspect(write.shard_id).trace[0].since == 1050


# --- close and time ---------------------------------------------------------------------------


class SlowBlob(MemBlob):
    """Reads take until they are let go, once they are watched."""

    def __init__(self):
        super().__init__()
        self.slow = False
        self.entered = threading.Event()
        self.gate = threading.Event()

    def get(self, key):
        if self.slow and key.endswith(".parquet"):
            self.entered.set()
            self.gate.wait(20)
        return super().get(key)


def test_close_gives_up_a_running_merge_and_deletes_what_it_wrote():
    blob, consensus = SlowBlob(), MemConsensus()
    settings = Settings(inline_bytes=0, part_bytes=200)
    client = PersistClient(blob, consensus, settings=settings)
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    blob.slow = True
    for i in range(4):
        rows = [(j, "v", i, 1) for j in range(50)]
        write.compare_and_append(updates(rows), expected_upper=i, new_upper=i + 1)
    assert blob.entered.wait(20)
    closing = threading.Thread(target=client.close)
    closing.start()
    assert client._context.closing.wait(20)
    blob.gate.set()
    closing.join(20)
    assert not closing.is_alive()
    blob.slow = False
    after = PersistClient(blob, consensus, background=False)
    state = after.inspect(write.shard_id)
    assert len(state.trace) == 4
    assert {key for key, _ in blob.list_keys_and_metadata("")} == referenced(state)


def test_close_interrupts_duckdb(monkeypatch):
    """A merge in DuckDB's hands, which asks nobody while it sorts, ends by its interrupt."""
    client = mem_client(inline_bytes=0, part_bytes=200)
    write, _, _ = filled(client, 4)
    from mzsql.persist import compaction

    begun = threading.Event()
    endless = (
        "SELECT c0, c1, a.range AS mz_time, b.range AS mz_diff"
        " FROM updates, range(1000000000) a, range(1000000000) b ORDER BY hash(a.range + b.range)"
    )

    def sql(*_):
        begun.set()
        return endless

    monkeypatch.setattr(compaction, "_ordered", sql)
    outcome = []

    def run():
        try:
            client.maintain(write.shard_id, full=True)
        except Determinate as given_up:
            outcome.append(given_up)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(20)
    client._context.closing.set()
    while thread.is_alive():
        write._opened.interrupt()
        thread.join(0.05)
    assert "given up" in str(outcome[0])
    assert blobs(client) == referenced(write._opened.shard.state)


def test_a_merge_that_takes_too_long_is_given_up():
    client = mem_client(inline_bytes=0)
    write, _, _ = filled(client, 4)
    clock = client._context.clock
    get = client.blob.get

    def slow(key):
        clock.ms += 2000
        return get(key)

    client.blob.get = slow
    with pytest.raises(Determinate, match="within 5 s"):
        client.maintain(write.shard_id, full=True, timeout=5.0)
    state = client.inspect(write.shard_id)
    assert len(state.trace) == 4
    assert blobs(client) == referenced(state)
    # In the background a merge may take long, as long as it gets on.
    write._opened.changed(write._opened)
    client.maintain(write.shard_id, full=True, timeout=500.0)
    assert len(client.inspect(write.shard_id).trace) == 1


# --- bounds -----------------------------------------------------------------------------------


def _state(sizes):
    trace = tuple(
        TraceBatch(i, i, i + 1, 0, (InlinePart(b"", rows, i, i, 0),))
        for i, rows in enumerate(sizes)
    )
    return ShardState(
        shard_id="s", seqno=1, walltime_ms=1, schema=b"", upper=len(sizes), trace=trace
    )


def test_broken_batches_are_never_chosen():
    settings = Settings(compaction_fanout=2, max_batches=3)
    assert choose(_state([1, 1, 1, 1]), settings, {1}).run == _state([1, 1, 1, 1]).trace[2:]
    assert choose(_state([1, 1, 1]), settings, {1}) is None
    many = choose(_state([1, 100, 10_000, 100, 1]), settings, {0, 2})
    assert [batch.id for batch in many.run] == [3, 4]
    assert choose(_state([1, 100] * 3), settings, set(range(6))) is None


def _bounded(count, **settings):
    """Append ``count`` batches, since close behind; the shard stays small, and each byte is rewritten few times."""
    client = mem_client(**settings)
    written = {"parquet": 0, "rollup": 0}
    put = client.blob.set

    def measured(key, value):
        written["rollup" if "rollup" in key else "parquet"] += len(value)
        put(key, value)

    client.blob.set = measured
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    appended = 0
    for i in range(count):
        rows = updates([(i, f"value {i}", i, 1), (i - 1, f"value {i - 1}", i, -1 if i % 3 else 1)])
        write.compare_and_append(rows, expected_upper=i, new_upper=i + 1)
        appended += rows.nbytes
        if i % 5 == 0:
            read.downgrade_since(max(0, i - 10))
    state = client.inspect(write.shard_id)
    interval = client.settings.rollup_interval
    assert len(state.trace) <= 4 * count.bit_length()
    assert len(client.consensus.scan(write.shard_id, 0, 10**6)) <= 2 * interval + 4
    assert blobs(client) == referenced(state)
    assert len(state.garbage) <= 3 * 16
    client.maintain(write.shard_id)
    assert client.inspect(write.shard_id).garbage == {}
    assert written["parquet"] <= 3 * appended * count.bit_length()
    client.maintain(write.shard_id, full=True)
    state = client.inspect(write.shard_id)
    assert len(state.trace) == 1
    assert blobs(client) == referenced(state)
    assert read.snapshot_arrow(count - 1)["mz_diff"].to_pylist().count(0) == 0


@pytest.mark.parametrize("inline_bytes", [0, 2000])
def test_a_thousand_appends_leave_a_small_shard(inline_bytes):
    _bounded(1000, inline_bytes=inline_bytes, inline_total_bytes=20_000)


@pytest.mark.long
def test_ten_thousand_appends_leave_a_small_shard():
    _bounded(10_000, inline_bytes=2000, inline_total_bytes=20_000)


def test_keyed_merges_stay_sorted_by_key():
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    client = mem_client(inline_bytes=0, part_bytes=4000)
    write, read, history = filled(
        client, 6, schema, lambda i: [((j * 7) % 50, "x", i, 1) for j in range(50)], KeySpec(("k",))
    )
    client.maintain(write.shard_id, full=True)
    [batch] = client.inspect(write.shard_id).trace
    keys = [k for key in batch.blob_keys for k in in_blob(client, key)["k"].to_pylist()]
    assert keys == sorted(keys)
    assert counted(read.snapshot_arrow(5)) == expected_at(history, 5)
