"""Updates that a process knows beyond a shard's state are read there as if the shard had them, and each is in the shard once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    Batch,
    ForeignBlob,
    InvalidBounds,
    KeySpec,
    PersistClient,
    ReadHandle,
    Settings,
    WriteHandle,
)

SHARD = "s00000000-0000-4000-8000-000000000001"
OTHER = "s00000000-0000-4000-8000-000000000002"
SCHEMA = pa.schema([pa.field("a", pa.int64())])
LAST = 30


def definite(lower: int, upper: int) -> pa.Table:
    """Every writer has these updates: time t brings row t % 4, and takes the one before; but nothing at multiples of 3."""
    times = [time for time in range(lower, upper) if time % 3]
    rows = [(time % 4, time, 1) for time in times]
    rows += [((time - 3) % 4, time, -1) for time in times if time % 5 == 0]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    full = pa.schema([*SCHEMA, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    return pa.table(dict(zip(full.names, columns, strict=True)), schema=full)


def contents(upper: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in definite(0, upper).to_pylist():
        found[row["a"]] += row["mz_diff"]
    return Counter({row: count for row, count in found.items() if count})


def read(reader: ReadHandle, as_of: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in reader.snapshot_arrow(as_of, timeout=5).to_pylist():
        found[row["a"]] += row["mz_diff"]
    return Counter({row: count for row, count in found.items() if count})


@pytest.fixture
def clients() -> Any:
    blob, consensus = MemBlob(), MemConsensus()
    with PersistClient(blob, consensus) as here, PersistClient(blob, consensus) as there:
        yield here, there


def test_quiet_appends_are_read_here_and_by_others_after_catching_up(clients: Any) -> None:
    here, there = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    other = there.open_reader(SHARD, SCHEMA)
    writer.compare_and_append(definite(0, 5), expected_upper=0, new_upper=5)
    writer.append_quietly(writer.batch(definite(5, 9), lower=5, upper=9))
    writer.pass_quietly(9, 10)
    assert (reader.upper, writer.known_upper, writer.upper, other.fetch_upper()) == (10, 10, 5, 5)
    assert writer.behind[0] == 1
    assert read(reader, 9) == contents(10)
    assert reader.updates(5, 10).num_rows == definite(5, 10).num_rows
    assert sum(part.rows for part in reader.parts_between(5, 10)) == definite(5, 10).num_rows
    [(listened, upper)] = [next(reader.listen(4))]
    assert (listened.num_rows, upper) == (definite(5, 10).num_rows, 10)
    assert writer.catch_up() == 10
    assert (writer.behind, other.fetch_upper()) == ((0, 0), 10)
    assert read(other, 9) == read(reader, 9) == contents(10)
    assert writer.catch_up() == 10


def test_of_what_another_writer_has_appended_meanwhile_nothing_counts_twice(clients: Any) -> None:
    here, there = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    writer.append_quietly(writer.batch(definite(0, 9), lower=0, upper=9))
    other = there.open_writer(SHARD, SCHEMA)
    other.compare_and_append(definite(0, 5), expected_upper=0, new_upper=5)
    assert reader.fetch_upper() == 9
    assert read(reader, 8) == contents(9)
    assert writer.catch_up() == 9
    assert read(reader, 8) == read(there.open_reader(SHARD, SCHEMA), 8) == contents(9)


def test_a_keyed_shard_catches_up_by_worker(clients: Any) -> None:
    here, there = clients
    key = KeySpec(("a",), workers=2)
    writer, reader = here.open_shard(SHARD, SCHEMA, key=key)
    for lower in range(0, 12, 4):
        rows = definite(lower, lower + 4)
        parts = {
            w: rows.filter(pa.compute.equal(pa.compute.bit_wise_and(rows["a"], 1), w))
            for w in (0, 1)
        }
        writer.append_quietly(writer.batch_by_worker(parts, lower=lower, upper=lower + 4))
    assert read(reader, 11) == contents(12)
    assert writer.catch_up() == 12
    other = there.open_reader(SHARD)
    assert read(other, 11) == contents(12)
    assert set(other.snapshot_arrow(11, workers=[1])["a"].to_pylist()) <= {1, 3}


def test_only_what_is_in_memory_and_the_shard_s_own_can_be_known_ahead(clients: Any) -> None:
    here, _ = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    foreign = Batch(OTHER, 0, 5)
    endless = Batch(SHARD, 0, None)
    for learn in (writer.append_quietly, reader.learn):
        with pytest.raises(ForeignBlob):
            learn(foreign)
        with pytest.raises(InvalidBounds):
            learn(endless)
    with PersistClient(MemBlob(), MemConsensus(), settings=Settings(inline_bytes=0)) as client:
        writer = client.open_writer(SHARD, SCHEMA)
        with pytest.raises(InvalidBounds):
            writer.append_quietly(writer.batch(definite(0, 5), lower=0, upper=5))


_SIDE = st.integers(0, 1)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ahead"), _SIDE, st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("append"), _SIDE, st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("catch up"), _SIDE, st.just(0), st.just(0)),
        st.tuples(st.just("look"), _SIDE, st.just(0), st.just(0)),
        st.tuples(st.just("learn"), _SIDE, st.integers(0, 20), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(_STEPS)
def test_two_processes_read_what_was_made_whatever_they_know(steps: list[Any]) -> None:
    """Each makes stretches of the same updates, with cuts of its own; some reach the other, in any order, as batches of a log do."""
    blob, consensus = MemBlob(), MemConsensus()
    with PersistClient(blob, consensus) as one, PersistClient(blob, consensus) as two:
        sides: list[tuple[WriteHandle, ReadHandle]] = [
            client.open_shard(SHARD, SCHEMA) for client in (one, two)
        ]
        logged: list[Batch] = []
        for kind, side, back, length in steps:
            writer, reader = sides[side]
            known, own = writer.known_upper, writer.upper
            assert known is not None
            assert own is not None
            if kind == "ahead":
                lower = max(own, known - back)
                upper = min(lower + length, LAST)
                if lower < upper:
                    logged.append(writer.batch(definite(lower, upper), lower=lower, upper=upper))
                    writer.append_quietly(logged[-1])
                    assert writer.known_upper >= upper
            elif kind == "append":
                upper = min(own + length, LAST)
                writer.append(definite(own, upper), lower=own, upper=upper)
            elif kind == "catch up":
                assert writer.catch_up() == writer.known_upper == writer.upper >= known
                assert writer.behind == (0, 0)
            elif kind == "look":
                reader.fetch_upper()
            elif logged:
                reader.learn(logged[back % len(logged)])
            for _, reading in sides:
                reached = reading.upper
                assert reached is not None
                if reached:
                    assert read(reading, reached - 1) == contents(reached)
                    assert reading.updates(0, reached).num_rows == definite(0, reached).num_rows
        for writer, _ in sides:
            writer.catch_up()
        reached = max(writer.fetch_upper() for writer, _ in sides)
        if reached:
            assert read(sides[0][1], reached - 1) == contents(reached)
