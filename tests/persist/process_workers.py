"""What the processes of the process tests do; each reports over its pipe what it begins and what was acknowledged.

A message is a tuple: ("begin", id), then ("ack", id) once the store has acknowledged, and ("error", text) where something is raised that
must not be. A killed process leaves in the pipe what it had sent.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection

import msgspec
import pyarrow as pa

from mzsql.location import LocationError
from mzsql.persist import ExpiredHandle, PersistClient, Settings, UpperMismatch

SCHEMA = pa.schema(
    [("name", pa.string()), ("n", pa.int64()), ("row", pa.int64()), ("v", pa.string())]
)

SETTINGS = Settings(
    rollup_interval=16,
    compaction_fanout=3,
    inline_bytes=1500,
    inline_total_bytes=6000,
    part_bytes=20_000,
    writer_lease_ms=5_000,
)
PATIENT = Settings(rollup_interval=16, compaction_fanout=3)


def open_client(
    place: str, settings: Settings = SETTINGS, *, background: bool = True
) -> PersistClient:
    return PersistClient.open(
        blob=f"file:{place}/blob",
        consensus=f"sqlite:{place}/c.db",
        settings=settings,
        background=background,
    )


def rows_of(name: str, n: int, time: int) -> pa.Table:
    """The rows of one append: how many and how large, its name and number tell; so that a part of them is told from the whole."""
    count = row_count(name, n)
    wide = "x" * (400 if n % 3 == 0 else 3)
    return pa.table(
        {
            "name": [name] * count,
            "n": pa.array([n] * count, pa.int64()),
            "row": pa.array(range(count), pa.int64()),
            "v": [f"{wide}{row}" for row in range(count)],
            "mz_time": pa.array([time] * count, pa.int64()),
            "mz_diff": pa.array([1] * count, pa.int64()),
        }
    )


def row_count(name: str, n: int) -> int:
    """How many rows the append has: 1 to 60."""
    return 1 + random.Random(f"{name}/{n}").randrange(60 if n % 5 == 0 else 6)


@contextlib.contextmanager
def reporting(pipe: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
        raise


def compare_and_appender(place: str, shard_id: str, name: str, pipe: Connection) -> None:
    """Append without end, at whatever time is next, and again where another was faster."""
    _append(place, SETTINGS, shard_id, name, itertools.count(), pipe)


def counted_appender(place: str, shard_id: str, name: str, count: int, pipe: Connection) -> None:
    """Append ``count`` times."""
    _append(place, SETTINGS, shard_id, name, range(count), pipe)


def short_lived_appender(
    place: str, shard_id: str, name: str, lease_ms: int, pipe: Connection
) -> None:
    """Append without end, with a lease of its own."""
    settings = msgspec.structs.replace(SETTINGS, writer_lease_ms=lease_ms)
    _append(place, settings, shard_id, name, itertools.count(), pipe)


def _append(
    place: str,
    settings: Settings,
    shard_id: str,
    name: str,
    numbers: Iterable[int],
    pipe: Connection,
) -> None:
    with reporting(pipe), open_client(place, settings) as client:
        write = client.open_writer(shard_id)
        upper = write.fetch_upper()
        assert upper is not None
        for n in numbers:
            pipe.send(("begin", (name, n)))
            while True:
                try:
                    write.compare_and_append(
                        rows_of(name, n, upper), expected_upper=upper, new_upper=upper + 1
                    )
                except UpperMismatch as mismatch:
                    upper = mismatch.current or 0
                except ExpiredHandle:
                    # Who was stopped, or got no time, for longer than its lease begins anew; what it was about to append is not there.
                    write = client.open_writer(shard_id)
                    upper = write.fetch_upper() or 0
                else:
                    upper += 1
                    break
            pipe.send(("ack", (name, n)))


def definite_rows(lower: int, upper: int) -> pa.Table:
    """What all instances write of ``[lower, upper)``: one append's rows at each time."""
    return pa.concat_tables([rows_of("definite", t, t) for t in range(lower, upper)])


def definite_appender(place: str, shard_id: str, name: str, pipe: Connection) -> None:
    """Append the same data as all others: from somewhat below the upper to somewhat beyond it."""
    rng = random.Random(name)
    with reporting(pipe), open_client(place) as client:
        write = client.open_writer(shard_id)
        while True:
            current = write.fetch_upper()
            assert current is not None
            lower, upper = max(0, current - rng.randrange(3)), current + 1 + rng.randrange(4)
            pipe.send(("begin", ("definite", upper)))
            write.append(definite_rows(lower, upper), lower=lower, upper=upper)
            pipe.send(("ack", ("definite", upper)))


def maintainer(place: str, shard_ids: list[str], name: str, pipe: Connection) -> None:
    """Compact and collect, without end."""
    rng = random.Random(name)
    with reporting(pipe), open_client(place) as client:
        while True:
            client.maintain(rng.choice(shard_ids), full=rng.random() < 0.2)


def follower(place: str, shard_id: str, pipe: Connection) -> None:
    """Snapshot and listen until the parent names the upper to stop at; then report all that was heard.

    Each append must be heard whole, at one time. A lease that ran out (the process was stopped) begins anew with a snapshot.
    """
    with reporting(pipe), open_client(place, PATIENT) as client:
        read = client.open_reader(shard_id)
        as_of = max((read.wait_for_upper(0, timeout=60) or 1) - 1, 0)
        heard = _heard(read.snapshot_arrow(as_of))
        stop: int | None = None
        pipe.send(("ack", "begun"))
        for updates, frontier in read.listen(as_of, timeout=120):
            new = _heard(updates)
            for (name, n), rows in new.items():
                assert rows == row_count(name, n), f"half of {name}/{n}: {rows} rows"
            heard += new
            assert frontier is not None
            read.downgrade_since(frontier - 1)
            if stop is None and pipe.poll():
                stop = pipe.recv()
            if stop is not None and frontier >= stop:
                break
        pipe.send(("heard", dict(heard)))


def _heard(updates: pa.Table) -> Counter[tuple[str, int]]:
    """How many rows there are of each append."""
    heard: Counter[tuple[str, int]] = Counter()
    grouped = updates.group_by(["name", "n"]).aggregate([("mz_diff", "sum")])
    for name, n, rows in zip(*(c.to_pylist() for c in grouped.columns), strict=True):
        heard[name, n] += rows
    return heard


def leased_reader(place: str, shard_id: str, lease_ms: int, pipe: Connection) -> None:
    """Read again and again; say when the lease has run out, and go on with a new reader."""
    settings = Settings(reader_lease_ms=lease_ms)
    with reporting(pipe), open_client(place, settings) as client:
        read = client.open_reader(shard_id)
        while True:
            try:
                upper = read.fetch_upper()
                assert upper is not None
                for (name, n), rows in _heard(read.snapshot_arrow(upper - 1)).items():
                    assert rows == row_count(name, n)
                read.downgrade_since(upper - 1)
                pipe.send(("ack", "read"))
            except ExpiredHandle:
                pipe.send(("ack", "expired"))
                read = client.open_reader(shard_id)


def finalizer(place: str, shard_ids: list[str], pipe: Connection) -> None:
    """End one shard after the other."""
    with reporting(pipe), open_client(place) as client:
        pipe.send(("ack", "begun"))
        for shard_id in shard_ids:
            client.finalize(shard_id)
            pipe.send(("ack", shard_id))


def limited_appender(place: str, shard_id: str, rows: int, limit: int, pipe: Connection) -> None:
    """Append ``rows`` rows at a time with files limited to ``limit`` bytes, as on a full disk, until that fails; then once without."""
    with reporting(pipe), open_client(place, Settings(timeout=2), background=False) as client:
        write = client.open_writer(shard_id)
        upper = write.fetch_upper()
        assert upper is not None
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        for n in range(1000):
            pipe.send(("begin", ("wide", n)))
            try:
                write.compare_and_append(
                    wide_rows(n, rows, upper),
                    expected_upper=upper,
                    new_upper=upper + 1,
                    timeout=0.5,
                )
            except LocationError as failure:
                pipe.send(("failure", f"{failure}, because {failure.__cause__}"))
                break
            pipe.send(("ack", ("wide", n)))
            upper += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        upper = write.fetch_upper()
        assert upper is not None
        pipe.send(("begin", ("wide", 1000)))
        write.compare_and_append(
            wide_rows(1000, rows, upper), expected_upper=upper, new_upper=upper + 1
        )
        pipe.send(("ack", ("wide", 1000)))


def wide_rows(n: int, count: int, time: int) -> pa.Table:
    """Rows of one append that hardly compress."""
    rng = random.Random(n)
    return pa.table(
        {
            "name": ["wide"] * count,
            "n": pa.array([n] * count, pa.int64()),
            "row": pa.array(range(count), pa.int64()),
            "v": [rng.randbytes(200).hex() for _ in range(count)],
            "mz_time": pa.array([time] * count, pa.int64()),
            "mz_diff": pa.array([1] * count, pa.int64()),
        }
    )
