"""What only shows between threads, at the end of a shard's life, and with values engines disagree about."""

from __future__ import annotations

import decimal
import gc
import math
import threading

import pyarrow as pa
import pytest
from persist_model import SCHEMA, ManualClock, blobs, counted, mem_client, updates

from mzsql.location import Determinate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    InvalidBounds,
    KeySpec,
    PersistClient,
    SchemaMismatch,
    Settings,
    ShardFinalized,
    SinceViolation,
    consolidate,
)
from mzsql.repr.errors import DataError

NAN = float("nan")


class GatedConsensus(MemConsensus):
    """Writes of the thread named ``gated`` wait at a gate."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def compare_and_set(self, key, expected, new):
        if threading.current_thread().name == "gated":
            self.entered.set()
            assert self.gate.wait(60)
        return super().compare_and_set(key, expected, new)


class GatedBlob(MemBlob):
    """Reads wait at a gate once it is closed."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def get(self, key):
        self.entered.set()
        assert self.gate.wait(60)
        return super().get(key)


def shard_of(schema, rows, key=None, **settings):
    """Handles of a new shard that holds ``rows`` (columns, diff) at time 0."""
    client = mem_client(**settings)
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    table = updates([(*row[:-1], 0, row[-1]) for row in rows], schema)
    write.compare_and_append(table, expected_upper=0, new_upper=1)
    return client, write, read


# --- threads ----------------------------------------------------------------------------------


def test_a_heartbeat_never_takes_since_back():
    consensus = GatedConsensus()
    with PersistClient(MemBlob(), consensus, background=False) as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        write.compare_and_append(None, expected_upper=0, new_upper=20)
        downgrade = threading.Thread(target=read.downgrade_since, args=(10,), name="gated")
        downgrade.start()
        assert consensus.entered.wait(60)
        heartbeat = threading.Thread(target=read.heartbeat)
        heartbeat.start()
        heartbeat.join(0.1)  # it has looked at since, and waits for its turn
        consensus.gate.set()
        downgrade.join()
        heartbeat.join()
        assert read.since == 10
        with pytest.raises(SinceViolation):
            read.snapshot_arrow(7)


@pytest.mark.parametrize(
    "act",
    [
        lambda read: read.snapshot_arrow(5, timeout=10),
        lambda read: read.parts(5, timeout=10),
        lambda read: read.updates(3, 6, timeout=10),
        lambda read: read.parts_between(3, 6, timeout=10),
        lambda read: read.small_updates(3, 6, rows=10, size=10_000, timeout=10),
    ],
    ids=["snapshot", "parts", "updates", "parts_between", "small_updates"],
)
def test_a_read_that_was_overtaken_by_a_downgrade_is_refused(act):
    with PersistClient(MemBlob(), MemConsensus(), background=False) as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        write.compare_and_append(updates([(1, "a", 4, 1)]), expected_upper=0, new_upper=5)
        waits = threading.Event()
        wait_until = read._opened.shard.wait_until

        def then_downgrade(*args):
            waits.set()
            state = wait_until(*args)
            read.downgrade_since(7)
            client.maintain(write.shard_id, full=True)
            return state

        read._opened.shard.wait_until = then_downgrade
        outcome = []

        def run():
            try:
                outcome.append(act(read))
            except SinceViolation as refused:
                outcome.append(refused)

        thread = threading.Thread(target=run)
        thread.start()
        assert waits.wait(60)
        write.compare_and_append(updates([(2, "b", 7, 1)]), expected_upper=5, new_upper=8)
        thread.join()
        assert isinstance(outcome[0], SinceViolation)


def test_leases_are_renewed_while_a_compaction_takes_long(monkeypatch):
    monkeypatch.setattr("mzsql.persist.background_work._HEARTBEAT_CHECK_SECONDS", 0.02)
    blob = GatedBlob()
    settings = Settings(inline_bytes=0, reader_lease_ms=400)
    with PersistClient(blob, MemConsensus(), settings=settings) as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        for i in range(4):
            row = updates([(i, "a", i, 1)])
            write.compare_and_append(row, expected_upper=i, new_upper=i + 1)
        assert blob.entered.wait(60)  # the compaction hangs
        threading.Event().wait(1.0)
        write.compare_and_append(None, expected_upper=4, new_upper=5)
        assert read.reader_id in client.inspect(write.shard_id).readers
        blob.gate.set()


def test_parts_keep_their_reader_alive():
    _, _, read = shard_of(SCHEMA, [(1, "a", 1)], inline_bytes=0)
    opened = read._opened
    refs = read.parts(0)
    del read
    gc.collect()
    assert len(opened.readers) == 1
    del refs
    gc.collect()
    assert opened.readers == []


class FailingConsensus(MemConsensus):
    """Takes no more writes once told."""

    failing = False

    def compare_and_set(self, key, expected, new):
        if self.failing:
            raise Determinate("no writes")
        return super().compare_and_set(key, expected, new)


def test_closing_many_handles_on_a_dead_backend_ends_soon():
    consensus, clock = FailingConsensus(), ManualClock()
    client = PersistClient(MemBlob(), consensus, clock=clock, background=False)
    handles = [client.open_shard(client.new_shard_id(), SCHEMA) for _ in range(20)]
    consensus.failing = True
    start = clock.monotonic()
    client.close()
    assert clock.monotonic() - start < 10
    assert len(handles) == 20


def test_a_call_ends_in_time_while_another_thread_retries():
    consensus = FailingConsensus()
    with PersistClient(MemBlob(), consensus, background=False) as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        consensus.failing = True
        tries = threading.Event()
        compare_and_set = consensus.compare_and_set

        def noticed(*args):
            tries.set()
            return compare_and_set(*args)

        consensus.compare_and_set = noticed
        append = threading.Thread(
            target=write.compare_and_append,
            args=(None,),
            kwargs={"expected_upper": 0, "new_upper": 1, "timeout": 600.0},
        )
        append.start()
        assert tries.wait(60)
        with pytest.raises(Determinate, match="another call"):
            read.wait_for_upper(5, timeout=0.1)
        assert append.is_alive()  # its time is not over
        consensus.failing = False
        append.join()
        assert read.wait_for_upper(0) == 1


# --- the end of a shard -----------------------------------------------------------------------


def test_a_finalized_shard_leaves_one_entry_and_no_objects():
    client, write, read = shard_of(SCHEMA, [(1, "a", 1)])
    client.finalize(write.shard_id)
    assert len(client.consensus.scan(write.shard_id, 0, 100)) == 1
    read.expire()
    write.expire()
    assert len(client.consensus.scan(write.shard_id, 0, 100)) == 1


def test_finalizing_deletes_batches_that_were_never_appended():
    client, write, _ = shard_of(SCHEMA, [(1, "a", 1)], inline_bytes=0)
    write.batch(updates([(1, "b", 1, 1)]), lower=1, upper=2)
    other = client.open_shard(client.new_shard_id(), SCHEMA)[0]
    other.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    assert len(blobs(client)) == 3
    client.finalize(write.shard_id)
    assert {key.split("/")[0] for key in blobs(client)} == {other.shard_id}


def test_a_client_keeps_nothing_of_a_finalized_shard():
    client, write, read = shard_of(SCHEMA, [(1, "a", 1)])
    client.finalize(write.shard_id)
    assert not client._shards.all()
    assert client.inspect(write.shard_id).finalized
    with pytest.raises(ShardFinalized):
        read.snapshot_arrow(0)
    client.finalize(write.shard_id)


def test_a_shard_that_ends_by_itself_is_cleaned_up():
    client, write, read = shard_of(SCHEMA, [(1, "a", 1)], inline_bytes=0)
    read.downgrade_since(None)
    write.compare_and_append(None, expected_upper=1, new_upper=None)
    assert client.inspect(write.shard_id).finalized
    assert blobs(client) == set()
    assert len(client.consensus.scan(write.shard_id, 0, 100)) == 1


def test_updates_for_a_shard_that_has_ended_are_refused():
    client = mem_client()
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(None, expected_upper=0, new_upper=None)
    with pytest.raises(InvalidBounds, match="ended"):
        write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=None, new_upper=None)
    write.compare_and_append(updates([]), expected_upper=None, new_upper=None)


def test_what_all_writers_of_the_same_data_end_has_ended_for_each():
    client = mem_client()
    shard = client.new_shard_id()
    writers = [client.open_shard(shard, SCHEMA)[0] for _ in range(2)]
    for write in writers:
        write.append(updates([(1, "a", 0, 1)]), lower=0, upper=1)
        write.append(None, lower=1, upper=None)
        write.append(None, lower=0, upper=None)
    assert writers[0].fetch_upper() is writers[1].fetch_upper() is None
    assert counted(client.open_reader(shard).snapshot_arrow(0)) == {(1, "a", 0): 1}


def test_updates_from_zero_below_since_are_refused():
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(6):
        write.compare_and_append(updates([(1, "a", i, 1)]), expected_upper=i, new_upper=i + 1)
    read.downgrade_since(5)
    client.maintain(write.shard_id, full=True)
    for upper in (1, 3, 5):
        with pytest.raises(SinceViolation):
            read.updates(0, upper)
    assert counted(read.updates(0, 6)) == {(1, "a", 5): 6}


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "ordered"),
    [
        (pa.list_(pa.int64()), [[], [1], [1, 2], [2], None]),
        (
            pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())]),
            [
                {"months": 0, "days": 5, "micros": 0},
                {"months": 1, "days": 0, "micros": -1},
                {"months": 1, "days": 0, "micros": 7},
                None,
            ],
        ),
    ],
    ids=["list", "interval"],
)
def test_nested_keys_are_sorted_but_not_looked_up(type_, ordered):
    schema = pa.schema([("k", type_), ("v", pa.int64())])
    rows = [(k, i, 1) for i, k in enumerate(reversed(ordered))]
    client, write, read = shard_of(schema, rows, KeySpec(("k",)), inline_bytes=0)
    client.maintain(write.shard_id, full=True)
    [part] = read.parts(0)
    assert part.to_arrow()["k"].to_pylist() == ordered
    with pytest.raises(SchemaMismatch, match="no order"):
        read.snapshot_arrow(0, key_ranges=[(ordered[0], ordered[0])])


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
def test_lookups_of_floats_go_by_their_order_in_sql(type_):
    schema = pa.schema([("k", type_)])
    values = [-0.0, 0.0, 1.5, -math.inf, math.inf, NAN]
    _, _, read = shard_of(schema, [(v, 1) for v in [*values, None]], KeySpec(("k",)))

    def found(lo, hi):
        keys = read.snapshot_arrow(0, key_ranges=[(lo, hi)], consolidate=False)["k"].to_pylist()
        return sorted(str(k) for k in keys)

    assert found(0.0, 0.0) == found(-0.0, -0.0) == ["-0.0", "0.0"]
    assert found(NAN, NAN) == found(NAN, None) == ["nan"]
    assert found(1.0, None) == ["1.5", "inf", "nan"]
    assert found(1.0, NAN) == ["1.5", "inf", "nan"]
    assert found(None, 0.0) == ["-0.0", "-inf", "0.0"]
    assert found(None, None) == ["None"]


def test_statistics_of_decimals_do_not_depend_on_the_decimal_context():
    widest = decimal.Decimal("9" * 38)
    schema = pa.schema([("k", pa.decimal128(38, 0))])
    _, _, read = shard_of(schema, [(widest, 1)], KeySpec(("k",)), inline_bytes=0)
    for precision in (5, 28, 60):
        with decimal.localcontext() as context:
            context.prec = precision
            assert read.snapshot_arrow(0, key_ranges=[(widest, widest)]).num_rows == 1


def test_diffs_beyond_int64_are_an_error():
    half = 2**62
    _, _, read = shard_of(SCHEMA, [(1, "a", half), (1, "a", half), (2, "b", 1)])
    with pytest.raises(DataError, match="do not fit"):
        read.snapshot_arrow(0)
    _, _, fits = shard_of(SCHEMA, [(1, "a", half), (1, "a", half - 1), (1, "a", -half)])
    assert counted(fits.snapshot_arrow(0)) == {(1, "a", 0): half - 1}
    least = -(2**63)
    _, _, lowest = shard_of(SCHEMA, [(1, "a", least), (2, "a", -1)])
    assert counted(lowest.snapshot_arrow(0)) == {(1, "a", 0): least, (2, "a", 0): -1}


@pytest.mark.parametrize("part_bytes", [64 * 2**20, 64], ids=["in memory", "by DuckDB"])
def test_names_that_differ_in_case_are_different_columns(part_bytes):
    schema = pa.schema([("a", pa.list_(pa.int64())), ("A", pa.int64()), ("n", pa.int64())])
    rows = [([1], 5, 1, 1), ([1], 6, 1, 1), ([1], 6, 2, 1)]
    key = KeySpec(("A",), additive=("n",))
    client, write, read = shard_of(schema, rows, key, part_bytes=part_bytes)
    client.maintain(write.shard_id, full=True)
    table = read.snapshot_arrow(0)
    assert table.select(["a", "A", "n", "mz_diff"]).to_pylist() == [
        {"a": [1], "A": 5, "n": 1, "mz_diff": 1},
        {"a": [1], "A": 6, "n": 3, "mz_diff": 2},
    ]


def test_structs_with_other_fields_are_refused():
    schema = pa.schema([("v", pa.struct([("q", pa.int64())]))])
    other = pa.schema([("v", pa.struct([("p", pa.int64())]))])
    client = mem_client()
    write, _ = client.open_shard(client.new_shard_id(), schema)
    with pytest.raises(SchemaMismatch, match='column "v"'):
        write.compare_and_append(updates([({"p": 1}, 0, 1)], other), expected_upper=0, new_upper=1)


def test_nested_floats_consolidate_as_sql_compares_them():
    schema = pa.schema([("v", pa.list_(pa.float64()))])
    rows = [([0.0], 0, 1), ([-0.0], 0, -1), ([NAN], 0, 1), ([-NAN], 0, -1)]
    assert consolidate(updates(rows, schema)).num_rows == 0


@pytest.mark.parametrize(
    ("rows", "size", "found"),
    [(3, 10_000, True), (2, 10_000, False), (3, 10, False), (0, 0, False)],
)
def test_small_updates_are_those_of_parts_within_bounds(rows, size, found):
    with PersistClient(MemBlob(), MemConsensus(), background=False) as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        write.compare_and_append(
            updates([(n, "a", 4, 1) for n in range(3)]), expected_upper=0, new_upper=5
        )
        write.compare_and_append(updates([(9, "b", 6, 1)]), expected_upper=5, new_upper=7)
        answer = read.small_updates(0, 5, rows=rows, size=size)
        assert (answer is not None) == found
        if answer is not None:
            table, read_bytes = answer
            assert table.equals(read.updates(0, 5))
            assert read_bytes == sum(ref.bytes for ref in read.parts_between(0, 5))
        assert read.small_updates(5, 5, rows=0, size=0) == (read.updates(5, 5), 0)
