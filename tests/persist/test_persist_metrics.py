"""What clients count and time, read from the registry as Prometheus scrapes it."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from persist_model import SCHEMA, ManualClock, updates
from prometheus_client import CollectorRegistry, generate_latest

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    BlobCache,
    InvalidBounds,
    KeySpec,
    MissingPart,
    PersistClient,
    ReadTimeout,
    Settings,
    UpperMismatch,
)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def made(registry):
    return _client(registry, MemBlob(), MemConsensus())


def _client(registry, blob, consensus, clock=None, **settings):
    return PersistClient(
        blob,
        consensus,
        clock=clock or ManualClock(),
        rng=random.Random(3),
        settings=Settings(**settings),
        background=False,
        blob_url="mem:secret-path",
        consensus_url="postgresql://somebody:secret-word@host/db",
        registry=registry,
    )


def value(registry, name, **labels):
    """A sample's value; 0 where there is none yet."""
    return registry.get_sample_value(f"mzsql_persist_{name}", labels) or 0


def calls(registry, operation):
    return value(registry, "operation_seconds_count", operation=operation)


def backend(registry, store, scheme, operation, name="backend_seconds_count"):
    return value(registry, name, store=store, scheme=scheme, operation=operation)


def append(write, time, rows=1):
    table = updates([(n, "x" * 20, time, 1) for n in range(rows)])
    write.compare_and_append(table, expected_upper=time, new_upper=time + 1)


def test_every_public_operation_is_counted_once(made, registry):
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA)
    append(write, 0)
    write.append(updates([(1, "a", 1, 1)]), lower=1, upper=2)
    batch = write.batch(updates([(1, "a", 2, 1)]), lower=2, upper=3)
    write.compare_and_append_batch(batch, expected_upper=2, new_upper=3)
    read.snapshot(2)
    read.parts(2)
    read.parts_between(1, 3)
    read.snapshot_arrow(2)
    read.updates(1, 3)
    read.small_updates(1, 3, rows=10, size=10_000)
    next(read.listen(1))
    read.wait_for_upper(2)
    read.fetch_upper()
    read.downgrade_since(1)
    read.heartbeat()
    hold = made.open_critical_reader(shard, "c")
    hold.downgrade_since(1)
    hold.release()
    made.maintain(shard, full=True)
    made.inspect(shard)
    made.report(shard)
    made.peek(shard)
    made.exists(shard)
    read.expire()
    write.expire()
    made.finalize(shard)
    once = (
        *("open_writer", "open_reader", "open_critical_reader", "compare_and_append", "append"),
        *("batch", "compare_and_append_batch", "snapshot", "parts", "parts_between"),
        *(
            "snapshot_arrow",
            "updates",
            "small_updates",
            "listen_item",
            "wait_for_upper",
            "fetch_upper",
        ),
        *("downgrade_since", "heartbeat", "critical_downgrade_since", "critical_release"),
        *("maintain", "merge", "inspect", "report", "peek", "exists", "expire_reader"),
        *("expire_writer", "finalize"),
    )
    assert {name: calls(registry, name) for name in once} == dict.fromkeys(once, 1)


def test_errors_are_counted_by_kind(made, registry):
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA)
    append(write, 0)
    with pytest.raises(UpperMismatch):
        append(write, 0)
    with pytest.raises(InvalidBounds):
        write.append(updates([(1, "a", 7, 1)]), lower=7, upper=8)
    with pytest.raises(ReadTimeout):
        read.snapshot_arrow(5, timeout=0)

    def errors(operation, kind):
        return value(registry, "operation_errors_total", operation=operation, kind=kind)

    assert errors("compare_and_append", "upper_mismatch") == 1
    assert errors("compare_and_append", "usage") == 0
    assert errors("append", "usage") == 1
    assert errors("snapshot_arrow", "timeout") == 1
    assert calls(registry, "compare_and_append") == 2  # failed ones are timed too


def test_a_missing_part_is_damage(registry):
    made = _client(registry, MemBlob(), MemConsensus(), inline_bytes=0)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0)
    [(key, _)] = made.blob.list_keys_and_metadata(write.shard_id)
    made.blob.delete(key)
    with pytest.raises(MissingPart):
        read.snapshot_arrow(0)
    assert value(registry, "operation_errors_total", operation="snapshot_arrow", kind="damage") == 1


def test_backend_calls_tell_the_scheme_and_the_bytes(registry):
    made = _client(registry, MemBlob(), MemConsensus(), inline_bytes=0)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0, rows=50)
    [(_, size)] = made.blob.list_keys_and_metadata(write.shard_id)
    assert backend(registry, "blob", "mem", "set") == 1
    assert backend(registry, "blob", "mem", "set", "backend_written_bytes_total") == size
    read.snapshot_arrow(0)
    assert backend(registry, "blob", "mem", "get", "backend_read_bytes_total") == size
    entries = made.consensus.scan(write.shard_id, 0, 100)
    scheme = "postgresql"
    written = backend(
        registry, "consensus", scheme, "compare_and_set", "backend_written_bytes_total"
    )
    assert written == sum(len(entry.data) for entry in entries)
    assert backend(registry, "consensus", scheme, "compare_and_set") == len(entries)


def test_no_secret_and_no_shard_is_in_a_label(made, registry):
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA, purpose="a-purpose")
    append(write, 0, rows=9000)
    read.snapshot_arrow(0)
    scraped = generate_latest(registry).decode()
    assert "mzsql_persist_operation_seconds" in scraped
    for hidden in (shard, "secret", "somebody", "host", "a-purpose", write.writer_id):
        assert hidden not in scraped
    assert set(re.findall(r'scheme="([^"]*)"', scraped)) == {"mem", "postgresql"}


def test_clients_share_the_collectors_of_a_registry(made, registry):
    other = _client(registry, made.blob, made.consensus)
    shard = made.new_shard_id()
    made.open_shard(shard, SCHEMA)
    other.open_shard(shard, SCHEMA)
    assert calls(registry, "open_reader") == 2
    elsewhere = CollectorRegistry()
    _client(elsewhere, made.blob, made.consensus).open_shard(shard, SCHEMA)
    assert calls(registry, "open_reader") == 2
    assert calls(elsewhere, "open_reader") == 1


def test_without_a_registry_the_default_one_is_used():
    from prometheus_client import REGISTRY

    before = value(REGISTRY, "operation_seconds_count", operation="exists")
    for _ in range(2):
        with PersistClient(MemBlob(), MemConsensus(), background=False) as made:
            made.exists(made.new_shard_id())
    assert value(REGISTRY, "operation_seconds_count", operation="exists") == before + 2


class FlakyConsensus(MemConsensus):
    """Fails the next calls as it is told, before or after having acted."""

    def __init__(self):
        super().__init__()
        self.failures = []

    def compare_and_set(self, key, expected, new):
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Determinate):
            raise failure
        done = super().compare_and_set(key, expected, new)
        if failure is not None:
            raise failure
        return done


def test_retries_and_lost_races_are_counted(registry):
    consensus = FlakyConsensus()
    made = _client(registry, MemBlob(), consensus)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    consensus.failures = [Determinate("no"), Indeterminate("maybe")]
    append(write, 0)
    assert value(registry, "retries_total") == 2
    for kind, count in (("determinate", 1), ("indeterminate", 1), ("usage", 0)):
        labels = {"store": "consensus", "scheme": "postgresql", "operation": "compare_and_set"}
        assert value(registry, "backend_errors_total", **labels, kind=kind) == count
    assert value(registry, "operation_errors_total", operation="compare_and_append") == 0
    assert value(registry, "lost_compare_and_sets_total") == 0
    # Another process moves the shard on, so this one's cached state is stale.
    other = _client(CollectorRegistry(), made.blob, consensus)
    other.open_reader(write.shard_id)
    append(write, 1)
    assert value(registry, "lost_compare_and_sets_total") == 1


def test_expired_leases_are_counted_and_handles_given_up_are_not(registry):
    clock = ManualClock()
    made = _client(registry, MemBlob(), MemConsensus(), clock)
    shard = made.new_shard_id()
    write, read = made.open_shard(shard, SCHEMA)
    append(write, 0)
    made.open_reader(shard).expire()
    clock.ms += 20 * 60 * 1000
    late, _ = made.open_shard(shard, SCHEMA)
    append(late, 1)
    assert value(registry, "leases_expired_total", handle="reader") == 1
    assert value(registry, "leases_expired_total", handle="writer") == 1
    assert read.reader_id not in made.inspect(shard).readers


def test_what_was_appended_and_what_maintenance_did(registry):
    clock = ManualClock()
    made = _client(registry, MemBlob(), MemConsensus(), clock, maintenance="elsewhere")
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(6):
        append(write, time, rows=3)
    big = pa.concat_tables(
        [updates([(n, f"{random.Random(n).random()}", 6, 1) for n in range(9000)])]
    )
    write.compare_and_append(big, expected_upper=6, new_upper=7)
    state = made.inspect(write.shard_id)
    assert value(registry, "appended_updates_total") == 18 + 9000
    assert value(registry, "appended_bytes_total", place="inline") == state.inline_size
    stored = sum(batch.size for batch in state.trace) - state.inline_size
    assert value(registry, "appended_bytes_total", place="blob") == stored > 0
    read.downgrade_since(6)
    report = made.maintain(write.shard_id, full=True)
    assert report.merges == 1
    for name, count in (
        ("merges_total", report.merges),
        ("batches_merged_total", report.batches_merged),
        ("rollups_total", report.rollups),
        ("garbage_deleted_objects_total", report.objects_deleted),
        ("truncated_entries_total", report.entries_truncated),
    ):
        assert value(registry, name) == count > 0, name


class FullBlob(MemBlob):
    """Takes no more objects once it is told to."""

    full = False

    def set(self, key, value):
        if self.full:
            raise Determinate("no space left")
        super().set(key, value)


def test_a_failed_round_of_maintenance_is_counted(registry):
    blob = FullBlob()
    made = _client(registry, blob, MemConsensus(), rollup_interval=4, timeout=0.5)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    blob.full = True
    for time in range(4):
        append(write, time)  # inline, so that only the rollup needs the Blob store
    assert value(registry, "maintenance_failures_total", kind="determinate") > 0
    assert value(registry, "rollups_total") == 0


def test_maintenance_elsewhere_is_left_to_others(registry):
    made = _client(registry, MemBlob(), MemConsensus(), maintenance="elsewhere")
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA, key=KeySpec(("k",)))
    for time in range(40):
        append(write, time)
    assert len(made.inspect(write.shard_id).trace) == 40
    other = _client(CollectorRegistry(), made.blob, made.consensus)
    other.maintain(write.shard_id)
    assert len(made.inspect(write.shard_id).trace) < 10


def test_reads_of_the_cache_are_counted_and_no_backend_calls(registry, tmp_path):
    made = PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=ManualClock(),
        settings=Settings(inline_bytes=0),
        background=False,
        blob_url="mem:x",
        registry=registry,
        cache=BlobCache(tmp_path),
    )
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0, rows=50)
    for _ in range(3):
        read.snapshot_arrow(0)
    [(_, size)] = made.blob.list_keys_and_metadata("")
    assert backend(registry, "blob", "mem", "get") == 1
    assert value(registry, "cache_requests_total", outcome="miss") == 1
    assert value(registry, "cache_requests_total", outcome="memory_hit") == 2
    assert value(registry, "cache_bytes_total", outcome="hit") == 2 * size
    assert value(registry, "cache_bytes_total", outcome="miss") == size


def test_splits_and_parts_that_are_read_are_counted(registry):
    made = _client(registry, MemBlob(), MemConsensus(), inline_bytes=0)
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0, rows=5)
    [split] = read.snapshot(0)
    assert split.to_arrow().num_rows == 5
    [part] = read.parts(0)
    assert part.to_arrow().num_rows == 5
    assert calls(registry, "split_to_arrow") == calls(registry, "part_to_arrow") == 1
