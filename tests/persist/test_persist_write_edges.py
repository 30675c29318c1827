"""Writes that must not lose, double or poison anything: buffered writers that close, values that do not fit, objects of others."""

from __future__ import annotations

import io
import random
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import ExpiredHandle, PersistClient, SchemaMismatch, Settings

SCHEMA = pa.schema([("a", pa.int64())])


class Gated(MemConsensus):
    """Lets compare-and-sets through while the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def compare_and_set(self, key, expected, new):
        if not self.gate.is_set():
            self.waiting.set()
        self.gate.wait(30)
        return super().compare_and_set(key, expected, new)


def _shard(schema=SCHEMA, *, background=False, consensus=None, **settings):
    client = PersistClient(
        MemBlob(),
        consensus or MemConsensus(),
        rng=random.Random(1),
        settings=Settings(**settings),
        background=background,
    )
    write, read = client.open_shard(client.new_shard_id(), schema)
    return client, write, read


def _rows(values, time, type_=None):
    return pa.table(
        {
            "a": pa.array(values, type_ or pa.int64()),
            "mz_time": pa.array([time] * len(values), pa.int64()),
            "mz_diff": pa.array([1] * len(values), pa.int64()),
        }
    )


@pytest.mark.parametrize("background", [False, True])
def test_what_is_pushed_while_a_writer_closes_is_refused_or_appended(background):
    """A push that was taken after the closing flush had begun would be in no batch, and nobody would say so."""
    consensus = Gated()
    client, write, read = _shard(background=background, consensus=consensus)
    buffered = write.buffered(flush_interval=1000)
    buffered.push(_rows([1], 0), upper=1)
    consensus.gate.clear()
    closing = threading.Thread(target=buffered.close)
    closing.start()
    assert consensus.waiting.wait(30)
    with pytest.raises(ExpiredHandle):
        buffered.push(_rows([2], 1), upper=2)
    consensus.gate.set()
    closing.join(30)
    assert buffered.durable_upper == buffered.upper == 1
    assert read.snapshot_arrow(0)["a"].to_pylist() == [1]
    client.close()


def test_a_closed_client_leaves_no_flushing_thread(caplog):
    """The buffer ends with its handle: the thread does, later calls say what became of it, and the log what was lost."""
    client, write, _ = _shard(background=True)
    buffered = write.buffered(flush_interval=1000)
    buffered.push(_rows([1], 0), upper=1)
    thread = buffered._thread
    client.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "buffered and not appended" in caplog.text
    for act in (lambda: buffered.push(_rows([2], 1), upper=2), buffered.flush, buffered.close):
        with pytest.raises(ExpiredHandle, match="durable is what was pushed up to"):
            act()


def test_threads_that_share_a_writer_without_a_thread_wait_for_room():
    """Whoever pushes into a full buffer while another's append is under way waits, rather than letting the buffer grow."""
    consensus = Gated()
    client, write, read = _shard(consensus=consensus)
    buffered = write.buffered(flush_interval=1000, flush_bytes=100)
    consensus.gate.clear()
    first = threading.Thread(
        target=lambda: buffered.push(_rows(list(range(50)), 0), upper=1), daemon=True
    )
    first.start()
    assert consensus.waiting.wait(30)
    buffered.push(_rows(list(range(50)), 1), upper=2)  # there is room again
    with pytest.raises(Exception, match="wait to be appended"):
        buffered.push(_rows([1], 2), upper=3, timeout=0.05)
    assert buffered.upper == 2
    consensus.gate.set()
    first.join(30)
    buffered.push(_rows([1], 2), upper=3)
    buffered.close()
    assert sum(read.snapshot_arrow(2)["mz_diff"].to_pylist()) == 101
    client.close()


@pytest.mark.parametrize(
    ("type_", "found", "value"),
    [
        (pa.timestamp("us"), pa.timestamp("ns"), 1),
        (pa.timestamp("us"), pa.timestamp("ms"), 2**62),
        (
            pa.struct([pa.field("x", pa.int64(), nullable=False)]),
            pa.struct([("x", pa.int64())]),
            {"x": None},
        ),
    ],
    ids=["finer", "beyond", "null within"],
)
@pytest.mark.parametrize("how", ["append", "adopt", "push"])
def test_values_that_are_none_of_the_shards_type_are_refused(how, type_, found, value):
    """Types that fit may have values that do not: a typed error, and no part that nobody can read."""
    client, write, read = _shard(pa.schema([("a", type_)]))
    table = _rows([value], 0, found)
    acts = {
        "append": lambda: write.compare_and_append(table, expected_upper=0, new_upper=1),
        "push": lambda: write.buffered(flush_interval=1000).push(table, upper=1),
        "adopt": lambda: _adopt(client, write, table),
    }
    with pytest.raises(SchemaMismatch, match="do not fit the shard"):
        acts[how]()
    write.compare_and_append(None, expected_upper=0, new_upper=1)
    assert read.snapshot_arrow(0).num_rows == 0
    client.close()


def _adopt(client, write, table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    key = f"{write.part_prefix()}/part.parquet"
    client.blob.set(key, file.getvalue())
    batch = write.adopt_parts([key], lower=0, upper=1)
    write.compare_and_append_batch(batch, expected_upper=0, new_upper=1)


def test_finer_timestamps_of_whole_microseconds_are_adopted():
    """The check is one of values: those that fit are taken."""
    client, write, read = _shard(pa.schema([("a", pa.timestamp("us"))]))
    _adopt(client, write, _rows([3000, None], 0, pa.timestamp("ns")))
    assert read.snapshot_arrow(0)["a"].cast(pa.int64()).to_pylist() == [3, None]
    client.close()


def test_int96_is_refused():
    """Spark's old timestamps wrap around in Arrow when they are far away; those of the year 3000 would come back as 1830."""
    client, write, _ = _shard(pa.schema([("a", pa.timestamp("us"))]))
    table = _rows([32503680000_000_000], 0, pa.timestamp("us"))
    with pytest.raises(SchemaMismatch, match="INT96"):
        _adopt(client, write, table, use_deprecated_int96_timestamps=True)
    client.close()
