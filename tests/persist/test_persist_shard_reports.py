"""What inspection shows, against what was done; and that looking changes nothing."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest
from persist_model import SCHEMA, ManualClock, another, blobs, counted, updates

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, MissingPart, PersistClient, SchemaMismatch, Settings
from mzsql.persist.cost import Activity, Prices, hundred_dollars_a_year, monthly_cost
from mzsql.persist.shard_reports import ShardReport

HOUR_MS = 3_600_000


def client(**settings):
    return PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=ManualClock(),
        rng=random.Random(5),
        settings=Settings(**{"maintenance": "elsewhere", **settings}),
        background=False,
    )


def append(write, time, rows=1):
    table = updates([(n, "x", time, 1) for n in range(rows)])
    write.compare_and_append(table, expected_upper=time, new_upper=time + 1)


def everything(made):
    """All bytes of both stores."""
    blob = {key: made.blob.get(key) for key in blobs(made)}
    return blob, {key: made.consensus.scan(key, 0, 10_000) for key in made.consensus.list_keys()}


def test_a_report_shows_every_part_of_a_shard():
    made = client(inline_bytes=1000)
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA, purpose="orders")
    made.open_critical_reader(shard, "hold", purpose="a dataflow")
    append(write, 0)
    append(write, 1, rows=500)
    for time in range(2, 8):
        append(write, time, rows=300)
    read.downgrade_since(2)
    other = another(made, inline_bytes=1000)
    other.maintain(shard)
    append(write, 8)
    lost = write.batch(updates([(n, "y", 9, 1) for n in range(500)]), lower=9, upper=10)
    made._context.clock.ms += 60_000
    state, sizes = made.inspect(shard), dict(made.blob.list_keys_and_metadata(""))
    report = made.report(shard)
    assert report is not None
    assert (report.since, report.upper, report.seqno) == (0, 9, state.seqno)
    assert report.columns == {"k": "int64", "v": "string"}
    assert report.purpose == "orders; a dataflow"
    assert report.updates == 1 + 500 + 6 * 300 + 1
    assert [b.id for b in report.batches] == [b.id for b in state.trace]
    assert report.batches[-1].inline_bytes == report.batches[-1].bytes > 0
    assert sum(b.inline_bytes for b in report.batches) == report.inline_bytes == state.inline_size
    [reader] = report.readers
    assert (reader.id, reader.frontier, reader.purpose) == (read.reader_id, 2, "orders")
    assert 14 * 60_000 <= reader.lease_left_ms < 15 * 60_000
    assert [w.frontier for w in report.writers] == [9]
    assert [(h.id, h.frontier, h.lease_left_ms) for h in report.critical] == [("hold", 0, None)]
    assert {r.key: r.bytes for r in report.rollups} == {
        key: sizes[key] for key in state.rollups.values()
    }
    assert [(u.key, u.bytes, u.age_ms) for u in report.unreferenced] == [
        (key, sizes[key], 60_000) for key in lost.blob_keys()
    ]
    assert report.missing == ()
    stored = report.cost.stored_bytes
    assert stored == sum(sizes.values())  # everything in Blob is accounted for
    entries = made.consensus.scan(shard, 0, 10_000)
    assert report.log.entries == len(entries)
    assert report.log.bytes == sum(len(e.data) for e in entries)


def test_garbage_tells_who_holds_it():
    made = client(inline_bytes=0)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(4):
        append(write, time)
    held = read.parts(3)
    another(made, inline_bytes=0).maintain(write.shard_id, full=True)
    [garbage] = made.report(write.shard_id).garbage
    assert garbage.objects == 4
    assert garbage.held_by == (read.reader_id,)
    assert garbage.bytes == sum(part.bytes for part in held)
    assert made.report(write.shard_id).garbage_bytes == garbage.bytes
    del held
    read.fetch_upper()
    read.heartbeat()
    [garbage] = made.report(write.shard_id).garbage
    assert garbage.held_by == ()


def test_keyed_batches_tell_their_workers():
    made = client(inline_bytes=0)
    key = KeySpec(("k",), workers=4)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA, key=key)
    rows = {worker: updates([(worker, "x", 0, 1)]) for worker in (1, 3)}
    write.compare_and_append(rows, expected_upper=0, new_upper=1)
    report = made.report(write.shard_id)
    [batch] = report.batches
    assert (batch.workers, batch.parts, batch.objects) == ((1, 3), 2, 2)
    assert report.key == key


def test_a_missing_object_is_told():
    made = client(inline_bytes=0)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0)
    [key] = blobs(made)
    made.blob.delete(key)
    assert made.report(write.shard_id).missing == (key,)


def test_looking_changes_nothing_and_holds_nothing():
    made = client(inline_bytes=0)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(5):
        append(write, time)
    read.downgrade_since(4)
    stranger = f"{made.new_shard_id()}/x.parquet"
    made.blob.set(stranger, b"123")
    before = everything(made)
    looker = another(made)
    assert looker.report(write.shard_id) is not None
    [(shard, report)] = looker.reports()
    assert (shard, report.shard_id) == (write.shard_id, write.shard_id)
    assert looker.shard_ids() == {write.shard_id}
    [strange] = looker.orphans()
    assert (strange.prefix, strange.objects, strange.bytes) == (stranger.partition("/")[0], 1, 3)
    assert looker.report(made.new_shard_id()) is None
    assert looker.peek(made.new_shard_id()) is None
    contents = looker.peek(write.shard_id)
    assert everything(made) == before
    assert counted(contents) == counted(read.snapshot_arrow(4))
    assert counted(contents) == {(0, "x", 4): 5}


def test_a_peek_survives_compaction_and_collection_under_it():
    class Intruded(MemBlob):
        intrude = staticmethod(lambda: None)

        def get(self, key):
            self.intrude()
            return super().get(key)

    made = client(inline_bytes=0)
    blob = Intruded()
    made = PersistClient(
        blob,
        MemConsensus(),
        clock=ManualClock(),
        rng=random.Random(1),
        settings=made.settings,
        background=False,
    )
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(5):
        append(write, time)
    read.downgrade_since(4)
    looker = another(made)

    def intrude():
        blob.intrude = lambda: None
        made.maintain(write.shard_id, full=True)

    blob.intrude = intrude
    assert counted(looker.peek(write.shard_id)) == {(0, "x", 4): 5}
    assert len(made.inspect(write.shard_id).trace) == 1


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_the_updates_of_a_state_that_pass_filters_are_read_and_nothing_changes(inline_bytes):
    made = client(inline_bytes=inline_bytes)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(4):
        append(write, time, rows=10)
    looker = another(made)
    before = everything(made)
    state = looker.inspect(write.shard_id)
    assert state is not None
    found = looker.updates(write.shard_id, state, ["v"], filters={"k": [(7, None)]})
    assert found.schema.names == ["v", "mz_time", "mz_diff"]
    assert sorted(found.to_pylist(), key=str) == [
        {"v": "x", "mz_time": time, "mz_diff": 1} for time in range(4) for _ in range(3)
    ]
    assert everything(made) == before
    with pytest.raises(SchemaMismatch, match="no column"):
        looker.updates(write.shard_id, state, [], filters={"nothing": [(7, None)]})
    read.downgrade_since(3)
    made.maintain(write.shard_id, full=True)
    if not inline_bytes:
        with pytest.raises(MissingPart):
            looker.updates(write.shard_id, state, ["v"])


def test_an_unreadable_shard_does_not_hide_the_others():
    made = client()
    shards = sorted(made.new_shard_id() for _ in range(3))
    for shard in shards:
        made.open_shard(shard, SCHEMA)
    head = made.consensus.head(shards[1])
    made.consensus.compare_and_set(shards[1], head.seqno, head._replace(seqno=head.seqno + 1))
    found = dict(another(made).reports())
    assert isinstance(found[shards[0]], ShardReport)
    assert isinstance(found[shards[1]], Exception)
    assert isinstance(found[shards[2]], ShardReport)


def test_a_finalized_shard():
    made = client(inline_bytes=0)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0)
    made.finalize(write.shard_id)
    report = made.report(write.shard_id)
    assert report.finalized
    assert (report.since, report.upper, report.batches) == (None, None, ())
    assert report.cost.stored_bytes == 0


def test_a_report_tells_who_was_expired():
    made = client(inline_bytes=0)
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA, purpose="orders")
    append(write, 0)
    assert made.report(shard).expired == ()
    other = another(made)
    other.inspect(shard)
    made._context.clock.ms += 48 * HOUR_MS
    other.sweep(shard)
    report = made.report(shard)
    assert (report.readers, report.writers, report.ending) == ((), (), False)
    told = {one.id: (one.kind, one.unseen_ms, one.purpose) for one in report.expired}
    assert told == {
        read.reader_id: ("reader", 48 * HOUR_MS, "orders"),
        write.writer_id: ("writer", 48 * HOUR_MS, "orders"),
    }
    assert {one.seqno for one in report.expired} == {report.seqno}


def test_a_report_is_json():
    made = client(inline_bytes=0)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA, purpose="p")
    append(write, 0)
    report = made.report(write.shard_id)
    encoded = msgspec.json.encode(report)
    assert msgspec.json.decode(encoded, type=ShardReport) == report


def test_the_cost_goes_on_as_the_log_shows():
    made = client(inline_bytes=0)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    clock = made._context.clock
    for time in range(10):
        clock.ms += HOUR_MS
        append(write, time)
    made.open_reader(write.shard_id)  # the first one's lease has run out
    # Without a collection, which would truncate the log.
    another(made, inline_bytes=0).maintain(write.shard_id, full=True, all_due=False)
    clock.ms += 2 * HOUR_MS
    report = made.report(write.shard_id)
    activity = report.log.activity
    assert (activity.appends, activity.objects_appended) == (10, 10)
    assert (activity.merges, activity.objects_compacted, activity.objects_dropped) == (1, 10, 10)
    assert activity.objects_written == 10 + activity.merges + activity.rollups
    hours = activity.seconds / 3600
    assert hours == pytest.approx(12, abs=0.01)
    month = 365.25 / 12 * 24
    puts = (activity.objects_written + 10) / hours * month
    gets = (10 + 10 * 1) / hours * month
    assert report.cost.puts_per_month == pytest.approx(puts)
    assert report.cost.gets_per_month == pytest.approx(gets)
    stored = sum(size for _, size in made.blob.list_keys_and_metadata(""))
    assert report.cost.total_usd == pytest.approx(
        stored / 2**30 * 0.023 + puts * 0.005 / 1000 + gets * 0.0004 / 1000
    )


def test_a_month_of_a_known_load():
    month = 365.25 / 12 * 24 * 3600
    activity = Activity(seconds=month, changes=9, objects_written=1000, objects_compacted=2000)
    cost = monthly_cost(100 * 2**30, activity, 0)
    assert cost.storage_usd == pytest.approx(2.30)
    assert cost.puts_usd == pytest.approx(0.005)
    assert cost.gets_usd == pytest.approx(0.0008)
    dear = monthly_cost(100 * 2**30, activity, 0, Prices(gib_month=0.1))
    assert dear.storage_usd == pytest.approx(10)
    assert any("2000 read by compaction" in told for told in cost.assumptions)


def test_a_log_without_time_costs_storage_only_and_says_so():
    cost = monthly_cost(2**30, Activity(seconds=0, changes=5, objects_written=9), 3)
    assert cost.total_usd == pytest.approx(0.023)
    assert not cost.reliable
    assert "look again later" in cost.assumptions[-1]


def test_what_a_hundred_dollars_buy():
    told = hundred_dollars_a_year()
    for part in ("362 GiB", "20 million PUT", "0.63 a second", "250 million GET", "7.9 a second"):
        assert part in told


def test_columns_of_any_type_are_named():
    made = client()
    schema = pa.schema([("a", pa.list_(pa.int32())), ("b", pa.decimal128(12, 2))])
    write, _ = made.open_shard(made.new_shard_id(), schema)
    assert made.report(write.shard_id).columns == {
        "a": str(schema.field("a").type),
        "b": "decimal128(12, 2)",
    }
