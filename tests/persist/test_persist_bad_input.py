"""Bad writes: a clear typed error each, the shard's state untouched, and no object left behind."""

from __future__ import annotations

import decimal
import random
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mzsql.location import Determinate, UsageError
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    Batch,
    CorruptPart,
    DuplicatePart,
    ExpiredHandle,
    ForeignBlob,
    InvalidBounds,
    KeySpec,
    MissingPart,
    PersistClient,
    SchemaMismatch,
    Settings,
    UpperMismatch,
)

SCHEMA = pa.schema([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)])
ROWS = 200


def rows(times=None, *, diffs=None, a=None, b=None, schema=SCHEMA):
    times = [5] * ROWS if times is None else times
    n = len(times)
    full = pa.schema([*schema, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    columns = {
        "a": list(range(n)) if a is None else a,
        "b": [f"text {i}" for i in range(n)] if b is None else b,
        "mz_time": times,
        "mz_diff": [1] * n if diffs is None else diffs,
    }
    return pa.table({name: columns[name] for name in full.names}, schema=full)


def last(values, bad):
    """A long column whose last value is bad: earlier parts are written before it is seen."""
    return [*values[:-1], bad]


TIMES = [5] * ROWS
BAD_UPDATES = {
    "a time below lower": (lambda: rows(last(TIMES, 4)), InvalidBounds),
    "a time at upper": (lambda: rows(last(TIMES, 10)), InvalidBounds),
    "a negative time": (lambda: rows(last(TIMES, -1)), InvalidBounds),
    "a NULL time": (lambda: rows(last(TIMES, None)), SchemaMismatch),
    "a NULL diff": (lambda: rows(diffs=last([1] * ROWS, None)), SchemaMismatch),
    "a NULL where none may be": (lambda: rows(b=last(["x"] * ROWS, None)), SchemaMismatch),
    "no time": (lambda: rows().drop_columns(["mz_time"]), SchemaMismatch),
    "no diff": (lambda: rows().drop_columns(["mz_diff"]), SchemaMismatch),
    "a missing column": (lambda: rows().drop_columns(["a"]), SchemaMismatch),
    "a column too many": (lambda: rows().append_column("c", [[1] * ROWS]), SchemaMismatch),
    "a column twice": (lambda: rows().append_column("a", [[1] * ROWS]), SchemaMismatch),
    "another type": (
        lambda: rows().set_column(0, "a", pa.array([decimal.Decimal(1)] * ROWS)),
        SchemaMismatch,
    ),
    "a narrower time": (
        lambda: rows().set_column(2, "mz_time", pa.array(TIMES, pa.int32())),
        SchemaMismatch,
    ),
    "no Arrow": (lambda: [{"a": 1}], SchemaMismatch),
    "workers of a shard without key": (lambda: {0: rows()}, SchemaMismatch),
}


class World:
    """A shard with some history, and what of it must not change."""

    def __init__(self, tmp_path, *, threads=False, key=None, **settings):
        self.blob = FileBlob(tmp_path / "blob")
        self.client = PersistClient(
            self.blob,
            MemConsensus(),
            rng=random.Random(3),
            settings=Settings(
                **{"inline_bytes": 0, "part_bytes": 1500, "timeout": 20.0, **settings}
            ),
            background=threads,
        )
        self.write, self.read = self.client.open_shard(self.client.new_shard_id(), SCHEMA, key=key)
        self.read.expire()
        first = rows([0] * 3) if key is None else {0: rows([0] * 3)}
        self.write.compare_and_append(first, expected_upper=0, new_upper=5)
        self.before = self.seen()

    def seen(self):
        return (self.client.inspect(self.write.shard_id), self.keys())

    def keys(self):
        return sorted(key for key, _ in self.blob.list_keys_and_metadata(""))

    def check(self):
        assert self.seen() == self.before
        assert list(self.blob.list_unfinished()) == []

    def close(self):
        self.client.close()


@pytest.fixture(params=[False, True], ids=["in order", "threads"])
def world(request, tmp_path):
    made = World(tmp_path, threads=request.param)
    yield made
    made.close()


def streamed(updates):
    if not isinstance(updates, pa.Table):
        return updates
    return pa.RecordBatchReader.from_batches(updates.schema, updates.to_batches(max_chunksize=32))


@pytest.mark.parametrize("name", BAD_UPDATES)
def test_bad_updates(world, name):
    """However they come in, and however many parts were written before they were seen."""
    make, error = BAD_UPDATES[name]
    calls = [
        lambda u: world.write.compare_and_append(u, expected_upper=5, new_upper=10),
        lambda u: world.write.append(u, lower=5, upper=10),
        lambda u: world.write.batch(u, lower=5, upper=10),
    ]
    for call in calls:
        for form in (lambda u: u, streamed):
            with pytest.raises(error) as caught:
                call(form(make()))
            assert str(caught.value)
            world.check()


BAD_FRONTIERS = {
    "an upper that goes back": (5, 4, InvalidBounds),
    "no room for updates": (5, 5, InvalidBounds),
    "another upper than the shard's": (4, 10, UpperMismatch),
    "one that is ahead": (7, 10, UpperMismatch),
    "text": ("5", 10, (InvalidBounds, UpperMismatch)),
    "a fraction": (5, 10.5, InvalidBounds),
    "a truth": (5, True, InvalidBounds),
    "below zero": (5, -1, InvalidBounds),
}


@pytest.mark.parametrize("name", BAD_FRONTIERS)
def test_bad_frontiers(world, name):
    expected, new, error = BAD_FRONTIERS[name]
    with pytest.raises(error):
        world.write.compare_and_append(rows(), expected_upper=expected, new_upper=new)
    world.check()
    if name != "no room for updates":
        with pytest.raises(error):
            world.write.compare_and_append(None, expected_upper=expected, new_upper=new)
        world.check()


def test_a_gap(world):
    with pytest.raises(InvalidBounds, match="gap"):
        world.write.append(rows([8] * ROWS), lower=7, upper=10)
    world.check()


def test_updates_beyond_the_end(tmp_path):
    world = World(tmp_path)
    world.write.compare_and_append(None, expected_upper=5, new_upper=None)
    world.before = world.seen()
    with pytest.raises(InvalidBounds, match="ended"):
        world.write.compare_and_append(rows(), expected_upper=None, new_upper=None)
    with pytest.raises(UpperMismatch):
        world.write.compare_and_append(rows(), expected_upper=5, new_upper=10)
    world.check()


def test_expired_handles(world):
    batch = world.write.batch(rows(), lower=5, upper=10)
    world.write.delete_batch(batch)
    world.write.expire()
    world.before = world.seen()
    for call in (
        lambda: world.write.compare_and_append(rows(), expected_upper=5, new_upper=10),
        lambda: world.write.compare_and_append(None, expected_upper=5, new_upper=10),
        lambda: world.write.append(rows(), lower=5, upper=10),
        lambda: world.write.batch(rows(), lower=5, upper=10),
        lambda: world.write.compare_and_append_batch(batch, expected_upper=5, new_upper=10),
        lambda: world.write.adopt_parts([f"{world.write.shard_id}/x"], lower=5, upper=10),
        world.write.buffered,
    ):
        with pytest.raises(ExpiredHandle):
            call()
        world.check()
    world.write.expire()


def test_batches_of_another_shard(world):
    other, _ = world.client.open_shard(world.client.new_shard_id(), SCHEMA)
    batch = other.batch(rows(), lower=5, upper=10)
    world.before = world.seen()
    for call in (
        lambda: world.write.compare_and_append_batch(batch, expected_upper=5, new_upper=10),
        lambda: world.write.delete_batch(batch),
        lambda: world.write.adopt_parts(batch.blob_keys(), lower=5, upper=10),
    ):
        with pytest.raises(ForeignBlob):
            call()
        world.check()


def test_batches_given_twice(world):
    batch = world.write.batch(rows(), lower=5, upper=10)
    world.before = world.seen()
    with pytest.raises(DuplicatePart, match="twice"):
        world.write.compare_and_append_batch([batch, batch], expected_upper=5, new_upper=10)
    world.check()
    world.write.compare_and_append_batch(batch, expected_upper=5, new_upper=10)
    world.before = world.seen()
    again = batch.rewrite_ts(12)
    for call in (
        lambda: world.write.compare_and_append_batch(again, expected_upper=10, new_upper=13),
        lambda: world.write.delete_batch(batch),
        lambda: world.write.adopt_parts(batch.blob_keys()[:1], lower=5, upper=10),
    ):
        with pytest.raises(UsageError):
            call()
        world.check()


def test_batches_outside_of_the_bounds(world):
    batch = world.write.batch(rows(), lower=5, upper=10)
    world.before = world.seen()
    with pytest.raises(InvalidBounds):
        world.write.compare_and_append_batch(batch.rewrite_ts(20), expected_upper=5, new_upper=10)
    with pytest.raises(InvalidBounds):
        world.write.compare_and_append_batch(batch, expected_upper=5, new_upper=5)
    with pytest.raises(UpperMismatch):
        world.write.compare_and_append_batch(batch, expected_upper=3, new_upper=10)
    world.check()  # the batch is the caller's, and stays
    world.write.delete_batch(Batch.from_bytes(batch.to_bytes()))
    assert len(world.keys()) < len(world.before[1])


def written(world, name, table, **options):
    key = f"{world.write.part_prefix()}/{name}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    world.blob.set(key, sink.getvalue().to_pybytes())
    return key


BAD_OBJECTS = {
    "a late time": (lambda: rows(last(TIMES, 10)), InvalidBounds),
    "an early time": (lambda: rows(last(TIMES, 4)), InvalidBounds),
    "a NULL time": (lambda: rows(last(TIMES, None)), SchemaMismatch),
    "a NULL diff": (lambda: rows(diffs=last([1] * ROWS, None)), SchemaMismatch),
    "a NULL": (lambda: rows(b=last(["x"] * ROWS, None)), SchemaMismatch),
    "a missing column": (lambda: rows().drop_columns(["b"]), SchemaMismatch),
    "another type": (
        lambda: rows().set_column(0, "a", pa.array(["x"] * ROWS)),
        SchemaMismatch,
    ),
}


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_objects_that_do_not_fit(tmp_path, name, statistics):
    """Seen by the footer where it tells, by the rows where not; all stays as it was, and whose it was."""
    world = World(tmp_path)
    make, error = BAD_OBJECTS[name]
    full = make().schema
    nullable = make().cast(pa.schema([field.with_nullable(True) for field in full]))
    good = written(world, "good", rows())
    empty = written(world, "empty", rows([]))
    bad = written(world, "bad", nullable, write_statistics=statistics)
    world.before = world.seen()
    with pytest.raises(error):
        world.write.adopt_parts([good, empty, bad], lower=5, upper=10)
    world.check()


def test_objects_that_are_none(world):
    good = written(world, "good", rows())
    no_parquet = f"{world.write.part_prefix()}/no.parquet"
    world.blob.set(no_parquet, b"PAR1 it is not")
    world.before = world.seen()
    shard_id = world.write.shard_id
    [live] = {part.key for batch in world.before[0].trace for part in batch.parts}
    for keys, error in (
        ([good, f"{shard_id}/absent.parquet"], MissingPart),
        ([good, "s/other.parquet"], ForeignBlob),
        ([good, no_parquet], CorruptPart),
        ([good, good], DuplicatePart),
        ([good, live], DuplicatePart),
    ):
        with pytest.raises(error) as caught:
            world.write.adopt_parts(keys, lower=5, upper=10)
        assert keys[1] in str(caught.value)
        world.check()
    with pytest.raises(SchemaMismatch, match="2 workers"):
        world.write.adopt_parts([good], workers=[None, None], lower=5, upper=10)
    world.check()


def test_workers_that_are_none(tmp_path):
    world = World(tmp_path, key=KeySpec(("a",), workers=2))
    for updates in ({2: rows()}, {-1: rows()}, rows(), {0: rows(), 5: rows()}):
        with pytest.raises(SchemaMismatch, match="worker"):
            world.write.compare_and_append(updates, expected_upper=5, new_upper=10)
        world.check()
    with pytest.raises(InvalidBounds):
        world.write.compare_and_append(
            {0: rows(), 1: rows(last(TIMES, 10))}, expected_upper=5, new_upper=10
        )
    world.check()


class Refusing(MemBlob):
    """Refuses to take one object more than it is told."""

    def __init__(self):
        super().__init__()
        self.left = 10**9

    def set(self, key, value):
        self.left -= 1
        if self.left < 0:
            raise Determinate("injected: full")
        super().set(key, value)


@pytest.mark.parametrize("background", [False, True], ids=["in order", "threads"])
@pytest.mark.parametrize("uploads", [1, 2, 5])
def test_a_part_that_cannot_be_written_takes_the_others_with_it(background, uploads):
    """Those under way when it failed, too."""
    client = PersistClient(
        Refusing(),
        MemConsensus(),
        settings=Settings(inline_bytes=0, part_bytes=1500, part_uploads=uploads),
        background=background,
    )
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    state = client.inspect(write.shard_id)
    for allowed in (0, 1, 2, 4):
        client.blob.left = allowed
        with pytest.raises(Determinate, match="injected"):
            write.compare_and_append(rows(), expected_upper=0, new_upper=10, timeout=0.05)
        assert list(client.blob.list_keys_and_metadata("")) == []
        assert client.inspect(write.shard_id) == state
    client.blob.left = 10**9
    write.compare_and_append(rows(), expected_upper=0, new_upper=10)
    parts = client.inspect(write.shard_id).trace[0].parts
    assert len(parts) > 4
    assert {part.key for part in parts} == {
        key for key, _ in client.blob.list_keys_and_metadata("")
    }
    assert sum(part.rows for part in parts) == ROWS
    client.close()


def test_calls_that_wait_for_another_of_the_handle_time_out(tmp_path):
    world = World(tmp_path)
    entered, leave = threading.Event(), threading.Event()
    updates = rows()

    def slowly():
        entered.set()
        leave.wait(30)
        yield from updates.to_batches()

    reader = pa.RecordBatchReader.from_batches(updates.schema, slowly())
    thread = threading.Thread(
        target=lambda: world.write.compare_and_append(reader, expected_upper=5, new_upper=10)
    )
    thread.start()
    assert entered.wait(30)
    for call in (
        lambda: world.write.compare_and_append(None, expected_upper=5, new_upper=6, timeout=0.01),
        lambda: world.write.batch(updates, lower=5, upper=10, timeout=0.01),
        lambda: world.write.append(updates, lower=5, upper=10, timeout=0.01),
    ):
        with pytest.raises(Determinate, match="earlier write"):
            call()
    leave.set()
    thread.join()
    assert world.write.fetch_upper() == 10


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        (pa.string_view(), False),
        (pa.binary_view(), False),
        (pa.float16(), False),
        (pa.null(), False),
        (pa.dictionary(pa.int32(), pa.string()), False),
        (pa.list_(pa.dictionary(pa.int32(), pa.string())), False),
        (pa.struct([("x", pa.list_view(pa.int32()))]), False),
        (pa.run_end_encoded(pa.int32(), pa.string()), False),
        (pa.decimal32(5, 2), True),
        (pa.decimal64(5, 2), True),
    ],
    ids=str,
)
def test_types_a_shard_cannot_keep(type_, key):
    """Refused when the shard is made, rather than when it is first compacted."""
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    shard_id = client.new_shard_id()
    with pytest.raises(SchemaMismatch, match="k"):
        client.open_shard(shard_id, pa.schema([("k", type_)]), key=KeySpec(("k",)) if key else None)
    assert not client.exists(shard_id)


def test_views_are_taken_as_what_they_show():
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    table = rows()
    place = table.schema.get_field_index("b")
    viewed = table.set_column(place, "b", table["b"].cast(pa.string_view()))
    write.compare_and_append(viewed, expected_upper=0, new_upper=10)
    assert sorted(read.snapshot_arrow(9)["b"].to_pylist()) == sorted(table["b"].to_pylist())
