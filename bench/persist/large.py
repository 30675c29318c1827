"""Cases of many rows at once: append, memory, Spark, growth."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import lineitem
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Case, median, rounds, scratch, timed
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.engines.spark_session import local_session
from mzsql.persist import PersistClient, ReadHandle
from mzsql.spark.shards import shard_dataframe

CHILDREN = Path(__file__).with_name("children.py")
MEMORY_ROWS = 6_000_000


def open_client(folder: Path) -> PersistClient:
    return PersistClient.open(blob=f"file:{folder}/blob", consensus=f"sqlite:{folder}/consensus.db")


def fsynced_parquet(rows: pa.Table, path: Path) -> None:
    """What append is measured against: pyarrow's defaults, then the file fsynced."""
    pq.write_table(rows, path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_seconds(updates: pa.Table, schema: pa.Schema, directory: Path) -> tuple[float, int]:
    """Seconds of an append of the whole to a fresh shard, and the bytes it stored."""
    with scratch(directory) as folder, open_client(folder) as client:
        write, _ = client.open_shard(client.new_shard_id(), schema)
        seconds = timed(lambda: write.append(lineitem.reader(updates), lower=0, upper=10))
        state = client.inspect(write.shard_id)
        assert state is not None
        assert sum(batch.rows for batch in state.trace) == updates.num_rows
        return seconds, sum(batch.size for batch in state.trace)


def append(rows: pa.Table, directory: Path, repeats: int) -> Case:
    """Case a."""
    case = Case(
        "a", "append a RecordBatchReader of lineitem, against pyarrow.parquet.write_table + fsync"
    )
    updates = lineitem.updates(rows, 5)
    sizes: dict[str, int] = {}

    def ours() -> float:
        seconds, sizes["mzsql.persist append"] = append_seconds(updates, rows.schema, directory)
        return seconds

    def theirs() -> float:
        with scratch(directory) as folder:
            seconds = timed(lambda: fsynced_parquet(rows, folder / "rows.parquet"))
            sizes["pyarrow + fsync"] = (folder / "rows.parquet").stat().st_size
        return seconds

    found = rounds(repeats, {"mzsql.persist append": ours, "pyarrow + fsync": theirs}, warm=1)
    base = median(found["pyarrow + fsync"])
    for name, seconds in found.items():
        case.row(
            what=name,
            rows=rows.num_rows,
            seconds=median(seconds),
            MB_s=rows.nbytes / 1e6 / median(seconds),
            stored_MB=sizes[name] / 1e6,
            throughput_ratio=base / median(seconds),
        )
    ratios = [b / o for o, b in zip(*found.values(), strict=True)]
    case.target("append : pyarrow", median(ratios), least=0.7)
    return case


def compacted(rows: pa.Table, client: PersistClient) -> tuple[ReadHandle, float]:
    """A shard with all rows in one compacted batch, and the seconds that took."""
    write, read = client.open_shard(client.new_shard_id(), rows.schema)
    write.append(lineitem.reader(lineitem.updates(rows, 5)), lower=0, upper=10)
    read.downgrade_since(9)
    seconds = timed(lambda: client.maintain(read.shard_id, full=True, timeout=600))
    return read, seconds


def spark(rows: pa.Table, directory: Path, repeats: int) -> Case:
    """Case b."""
    case = Case(
        "b",
        "snapshot of a compacted shard through Spark, against spark.read.parquet of pyarrow's file",
    )
    few = ["l_quantity", "l_extendedprice", "l_shipdate"]
    session = local_session()
    with scratch(directory) as folder, open_client(folder) as client:
        read, seconds = compacted(rows, client)
        path = folder / "rows.parquet"
        pq.write_table(rows, path)
        state = client.inspect(read.shard_id)
        assert state is not None
        case.notes.append(
            f"Compaction took {seconds:.1f} s ({rows.nbytes / 1e6 / seconds:.0f} MB/s); {sum(len(b.parts) for b in state.trace)} parts, "
            f"{sum(b.size for b in state.trace) / 1e6:.0f} MB, against {path.stat().st_size / 1e6:.0f} MB. All columns go to Spark's noop "
            "sink; few are max of three, and the number of rows (the sum of mz_diff). Frames are made anew each time."
        )
        schema = session.read.parquet(str(path)).schema
        counted: dict[str, int] = {}

        def whole(frame: Callable[[], Any]) -> Callable[[], float]:
            return lambda: timed(lambda: frame().write.format("noop").mode("overwrite").save())

        def some(name: str, frame: Callable[[], Any], count: Any) -> Callable[[], float]:
            def run() -> float:
                begun = perf_counter()
                [row] = frame().agg(*(F.max(c) for c in few), count.alias("n")).collect()
                seconds = perf_counter() - begun
                counted[name] = row["n"]
                return seconds

            return run

        def plain() -> Any:
            return session.read.schema(schema).parquet(str(path))

        queries = {
            "all columns": {
                "mzsql.persist": whole(lambda: shard_dataframe(session, read, 9)),
                "spark.read.parquet": whole(plain),
            },
            "three columns": {
                "mzsql.persist": some(
                    "mzsql.persist",
                    lambda: shard_dataframe(session, read, 9, few),
                    F.sum("mz_diff"),
                ),
                "spark.read.parquet": some("spark.read.parquet", plain, F.count("*")),
            },
        }
        for query, contenders in queries.items():
            found = rounds(repeats, contenders, warm=4)
            base = median(found["spark.read.parquet"])
            for name, times in found.items():
                case.row(
                    query=query,
                    what=name,
                    rows=rows.num_rows,
                    seconds=median(times),
                    MB_s=rows.nbytes / 1e6 / median(times) if query == "all columns" else None,
                    speed_ratio=base / median(times),
                )
            case.target(
                f"{query}, Spark on parts : spark.read.parquet",
                base / median(found["mzsql.persist"]),
                least=0.8,
            )
        assert set(counted.values()) == {rows.num_rows}, counted
    return case


def memory(file: Path, directory: Path) -> Case:
    """Case g."""
    case = Case(
        "g",
        f"peak memory of an append of {MEMORY_ROWS:,} rows from a RecordBatchReader that reads a file lazily",
    )
    peaks = {}
    for what in ("drain", "append"):
        with scratch(directory) as folder:
            out = folder / "found.json"
            command = [
                sys.executable,
                str(CHILDREN),
                str(out),
                "memory",
                what,
                str(folder),
                str(file),
                str(MEMORY_ROWS),
            ]
            subprocess.run(command, check=True)
            found = json.loads(out.read_text())
        peaks[what] = found["peak"] / 1e6
        case.row(
            process={"drain": "reads the source only", "append": "appends"}[what],
            peak_MB_above_start=peaks[what],
            seconds=found["seconds"],
        )
    case.notes.append("The first line is what the source itself takes; the second includes it.")
    case.target("append's peak above the start, MB", peaks["append"], most=600)
    return case


def growth(rows: pa.Table, scale: float, directory: Path, repeats: int) -> Case:
    """Case i."""
    case = Case(
        "i",
        "append and snapshot (compacted, to Arrow) at growing sizes, against pyarrow writing (+ fsync) and reading Parquet",
    )
    for part in (0.01, 0.1, 1.0):
        if part > scale:
            continue
        some = rows.slice(0, round(rows.num_rows * part / scale))
        updates = lineitem.updates(some, 5)
        with scratch(directory) as folder, open_client(folder) as client:
            path = folder / "rows.parquet"
            written = rounds(
                repeats,
                {
                    "ours": lambda u=updates, s=some: append_seconds(u, s.schema, directory)[0],
                    "theirs": lambda s=some, p=path: timed(lambda: fsynced_parquet(s, p)),
                },
            )
            read, _ = compacted(some, client)
            path.unlink()
            pq.write_table(some, path)

            def ours(read: ReadHandle = read, number: int = some.num_rows) -> float:
                begun = perf_counter()
                found = read.snapshot_arrow(9)
                seconds = perf_counter() - begun
                assert found.num_rows == number
                return seconds

            got = rounds(
                repeats, {"ours": ours, "theirs": lambda p=path: timed(lambda: pq.read_table(p))}
            )
        megabytes = some.nbytes / 1e6
        case.row(
            scale=part,
            rows=some.num_rows,
            append_MB_s=megabytes / median(written["ours"]),
            append_ratio=median(written["theirs"]) / median(written["ours"]),
            snapshot_MB_s=megabytes / median(got["ours"]),
            snapshot_ratio=median(got["theirs"]) / median(got["ours"]),
        )
        gc.collect()
    return case


def free(directory: Path) -> int:
    """Bytes free where the benchmark writes."""
    return shutil.disk_usage(directory).free
