"""What a writer says did not happen is complete to its process at once, and to all others when the shard has followed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from mzsql.location import consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import InvalidBounds, PersistClient, ReadTimeout, Settings

SHARD = "s00000000-0000-4000-8000-000000000001"
SCHEMA = pa.schema([pa.field("a", pa.int64())])


def rows(*updates: tuple[int, int, int]) -> pa.Table:
    columns = list(zip(*updates, strict=True))
    return pa.table(
        {"a": columns[0], "mz_time": columns[1], "mz_diff": columns[2]},
        schema=pa.schema([*SCHEMA, ("mz_time", pa.int64()), ("mz_diff", pa.int64())]),
    )


@pytest.fixture
def clients() -> Any:
    blob, consensus = MemBlob(), MemConsensus()
    with PersistClient(blob, consensus) as here, PersistClient(blob, consensus) as there:
        yield here, there


def test_quiet_times_are_read_here_and_not_elsewhere(clients: Any) -> None:
    here, there = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    other = there.open_reader(SHARD, SCHEMA)
    writer.compare_and_append(rows((1, 3, 1)), expected_upper=0, new_upper=5)
    writer.pass_quietly(5, 20)
    assert (reader.upper, reader.fetch_upper(), reader.wait_for_upper(19, timeout=0)) == (20,) * 3
    assert (writer.upper, reader.durable_upper, other.fetch_upper()) == (5, 5, 5)
    assert reader.snapshot_arrow(19).to_pydict() == {"a": [1], "mz_time": [19], "mz_diff": [1]}
    assert reader.updates(5, 20).num_rows == 0
    listened, upper = next(reader.listen(2))
    assert (listened.to_pydict(), upper) == ({"a": [1], "mz_time": [3], "mz_diff": [1]}, 20)
    with pytest.raises(ReadTimeout):
        reader.wait_for_upper(20, timeout=0)
    with pytest.raises(ReadTimeout):
        other.wait_for_upper(5, timeout=0)
    # the next append closes the gap for all
    writer.compare_and_append(rows((2, 20, 1)), expected_upper=5, new_upper=21)
    assert other.fetch_upper() == reader.upper == 21
    assert sorted(other.snapshot_arrow(20).column("a").to_pylist()) == [1, 2]


def test_quiet_times_count_from_where_the_shard_has_come_to(clients: Any) -> None:
    here, there = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    writer.compare_and_append(None, expected_upper=0, new_upper=5)
    writer.pass_quietly(8, 12)  # what is before may have updates
    assert reader.upper == 5
    there.open_writer(SHARD, SCHEMA).compare_and_append(
        rows((1, 6, 1)), expected_upper=5, new_upper=8
    )
    assert reader.fetch_upper() == 12
    assert reader.snapshot_arrow(11).column("a").to_pylist() == [1]
    writer.pass_quietly(10, 15)
    assert reader.upper == 15
    with pytest.raises(InvalidBounds):
        writer.pass_quietly(15, 14)
    writer.pass_quietly(4, 6)  # long known
    assert reader.upper == 15


def test_a_wait_ends_when_the_writer_passes(clients: Any) -> None:
    here, _ = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    writer.compare_and_append(None, expected_upper=0, new_upper=5)
    writer.pass_quietly(5, 6)
    reached: list[Any] = []
    waits = [
        threading.Thread(target=lambda at=at: reached.append(reader.wait_for_upper(at, timeout=60)))
        for at in (8, 30)
    ]
    for wait in waits:
        wait.start()
    writer.pass_quietly(6, 10)
    waits[0].join(60)
    assert reached == [10]
    writer.compare_and_append(None, expected_upper=5, new_upper=40)
    waits[1].join(60)
    assert reached == [10, 40]


def test_who_waits_hears_of_other_processes_once_the_writer_is_gone(clients: Any) -> None:
    here, there = clients
    writer, reader = here.open_shard(SHARD, SCHEMA)
    writer.compare_and_append(None, expected_upper=0, new_upper=5)
    writer.pass_quietly(5, 6)
    writer.expire()
    reached: list[Any] = []
    wait = threading.Thread(target=lambda: reached.append(reader.wait_for_upper(8, timeout=60)))
    wait.start()
    there.open_writer(SHARD, SCHEMA).compare_and_append(None, expected_upper=5, new_upper=10)
    wait.join(60)
    assert reached == [10]
    assert reader.upper == 10


def test_who_is_told_of_progress_looks_by_itself_once_a_second_at_most() -> None:
    asked: Counter[str] = Counter()

    def counted(operation: str, act: Callable[[], Any]) -> Any:
        asked[operation] += 1
        return act()

    store = consensus_around(MemConsensus(), counted)
    with PersistClient(MemBlob(), store, settings=Settings(maintenance="elsewhere")) as here:
        writer, reader = here.open_shard(SHARD, SCHEMA)
        writer.compare_and_append(None, expected_upper=0, new_upper=5)
        writer.pass_quietly(5, 6)
        asked.clear()
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(ReadTimeout):
                reader.wait_for_upper(8, timeout=0.001)
        assert asked["scan"] <= 2 + (time.monotonic() - began)
