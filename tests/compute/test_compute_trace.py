"""Traces against a list of updates that is looked through."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.arrangements import runs as hashed
from mzsql.compute.replica.arrangements import trace as traces
from mzsql.compute.replica.arrangements.run_files import RunFiles
from mzsql.compute.replica.arrangements.runs import Run, in_order, key_hashes
from mzsql.compute.replica.arrangements.trace import Trace
from mzsql.persist import KeySpec
from mzsql.persist.consolidate import consolidate

#: Types of keys, with values that are easily mistaken for each other.
_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, None]),
    "bigint": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), None]),
    "bool": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["", "a", "A", "\x00", "ä", "a" * 50, None]),
    "numeric": (
        pa.decimal128(38, 2),
        [Decimal(0), Decimal("0.01"), Decimal("-0.01"), Decimal(10**35), None],
    ),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), float("-inf"), 1e300, None]),
    "date": (pa.date32(), [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamptz": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    "bytes": (pa.binary(), [b"", b"\x00", None]),
    "list": (pa.list_(pa.int64()), [[], [None], [1], None]),
    "record": (pa.struct([("f1", pa.int64()), ("f2", pa.string())]), [{"f1": 1, "f2": None}, None]),
}

_driver = Driver()


def hasher(table: pa.Table) -> Any:
    return _driver.run('SELECT hash("c0") AS h FROM t', {"t": table})["h"].to_numpy()


def same(value: Any) -> Any:
    """One representative of what is equal in SQL."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return repr(value) if isinstance(value, list | dict) else value


def table_of(types: list[str], rows: list[tuple[Any, ...]]) -> pa.Table:
    fields = [pa.field(f"c{i}", _TYPES[name][0]) for i, name in enumerate(types)]
    fields += [pa.field(n, pa.int64()) for n in ("c9", "mz_time", "mz_diff")]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[list[tuple[Any, ...]]]]:
    types = draw(st.lists(st.sampled_from(sorted(_TYPES)), min_size=1, max_size=3))
    keys = st.tuples(*(st.sampled_from(_TYPES[name][1]) for name in types))
    batches = []
    for time in range(draw(st.integers(1, 20))):
        rows = draw(
            st.lists(st.tuples(keys, st.integers(0, 3), st.sampled_from([1, 1, -1])), max_size=6)
        )
        batches.append([(*key, value, time + 1, diff) for key, value, diff in rows])
    return types, batches


#: Where files can be written, and where none can.
_FOLDERS = ("/tmp", "/proc/self")


@settings(max_examples=60, deadline=None)
@given(
    histories(), st.randoms(use_true_random=False), st.sampled_from([None, *map(Path, _FOLDERS)])
)
def test_a_lookup_finds_what_a_scan_finds(history: Any, rng: Any, folder: Path | None) -> None:
    """In memory, in files, and where no file can be written."""
    types, batches = history
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "MAPPED_BYTES", 1 << 20 if folder is None else 0)
        patch.setattr(traces, "FAN", 4)
        patch.setattr(traces, "MOST_RUNS", 8)
        check(types, batches, rng, folder or Path(_FOLDERS[0]))


def check(types: list[str], batches: list[list[tuple[Any, ...]]], rng: Any, folder: Path) -> None:
    arity = len(types)
    spec = KeySpec(columns=tuple(f"c{i}" for i in range(arity)), workers=1, additive=())
    made = Trace(
        table_of(types, []).schema,
        arity,
        0,
        hasher=hasher,
        consolidated=lambda rows: consolidate(rows, spec),
        files=RunFiles(None, lambda: folder),
    )
    everything: list[tuple[Any, ...]] = []
    merges: list[tuple[traces.Merge, Any]] = []
    # Of what comes first runs are made beside, as of what a hydration writes.
    taken = rng.randint(0, len(batches))
    runs = [made.run_of(table_of(types, batch)) for batch in batches[:taken]]
    made.take([run for run in runs if run is not None])
    everything += [row for batch in batches[:taken] for row in batch]
    for number, batch in enumerate(batches[taken:], taken):
        everything += batch
        made.add(table_of(types, batch), rng.randint(made.since, number + 1))
        if rng.random() < 0.5:
            made.sort()
        # Merges that others make, begun and taken at any time, in any order, some of them of runs that are gone.
        due = made.due()
        if due is not None and rng.random() < 0.7:
            merges.append((due, due.made()))
        while merges and rng.random() < 0.5:
            made.settle(*merges.pop(rng.randrange(len(merges))))
        as_of = rng.randint(made.since, number + 1)
        width = rng.randint(1, arity)
        keys = [tuple(rng.choice(_TYPES[name][1]) for name in types[:width]) for _ in range(3)]
        fields = [pa.field(f"k{i}", _TYPES[name][0]) for i, name in enumerate(types[:width])]
        given = pa.Table.from_arrays(
            [pa.array([k[i] for k in keys], f.type) for i, f in enumerate(fields)],
            schema=pa.schema(fields),
        )
        found = made.find(np.unique(key_hashes(given, hasher)), width, as_of)
        rows = found.rows()
        assert found.count >= rows.num_rows
        assert set(rows["mz_time"].to_pylist()) <= {as_of}
        wanted = {tuple(map(same, key)) for key in keys}
        scanned = [r for r in everything if r[arity + 1] <= as_of]
        expected = amounts([r for r in scanned if tuple(map(same, r[:width])) in wanted], arity)
        # Two keys may have one hash, as DuckDB's of [] and of [NULL]: then both are found.
        asked = [r for r in rows_of(rows) if tuple(map(same, r[:width])) in wanted]
        assert amounts(asked, arity) == expected
        assert len(asked) == rows.num_rows or {"list", "record"} & set(types[:width])
        assert amounts(rows_of(made.all(as_of).rows()), arity) == amounts(scanned, arity)
    assert len(made._runs) < taken + traces.MOST_RUNS


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def amounts(rows: list[tuple[Any, ...]], arity: int) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for row in rows:
        total[tuple(map(same, row[: arity + 1]))] += row[-1]
    return {row: diff for row, diff in total.items() if diff}


def test_events_are_found_by_their_time(tmp_path: Path) -> None:
    schema = pa.schema([(n, pa.int64()) for n in ("c0", "c1", "mz_time", "mz_diff")])
    made = Trace(
        schema,
        1,
        0,
        hasher=hasher,
        consolidated=consolidate,
        files=RunFiles(None, lambda: tmp_path),
    )
    for time in range(1, 30):
        made.add(pa.table([[time * 10, None], [time, 0], [time, time], [1, 1]], schema=schema), 0)
    found = made.between(50, 120, 8).rows()
    assert sorted(found["c0"].to_pylist()) == [50, 60, 70, 80]
    assert made.between(500, 600, 29).count == 0


def test_what_readers_have_passed_is_one_time_and_what_cancels_goes(tmp_path: Path) -> None:
    schema = pa.schema([(n, pa.int64()) for n in ("c0", "mz_time", "mz_diff")])
    made = Trace(
        schema,
        1,
        0,
        hasher=hasher,
        consolidated=consolidate,
        files=RunFiles(None, lambda: tmp_path),
    )
    for time in range(1, 200):
        made.add(pa.table([[7], [time], [1 if time % 2 else -1]], schema=schema), time)
    assert made.since == 199
    assert made.updates < 2 * traces.MOST_RUNS


def test_texts_hash_alike_wherever_they_stand_and_apart_from_others() -> None:
    texts = ["\x00" * n + "ä"[: n % 2] for n in range(40)] + [f"{n:>{n % 30}}" for n in range(2000)]
    column = pa.array([None, *texts, None])
    hashes = key_hashes(pa.table({"k": column}), hasher)
    assert len(set(hashes.tolist())) == len({*texts, None})
    for begin, count in ((0, 0), (1, 1), (7, 900), (2000, 41)):
        part = pa.table({"k": column.slice(begin, count)})
        assert (key_hashes(part, hasher) == hashes[begin : begin + count]).all()


def test_runs_in_files_keep_none_of_them_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have few files open, by default about a thousand."""
    monkeypatch.setattr(traces, "MAPPED_BYTES", 0)
    schema = pa.schema([(n, pa.int64()) for n in ("c0", "mz_time", "mz_diff")])
    opened, kept = len(list(Path("/dev/fd").iterdir())), list[Trace]()
    for number in range(50):
        made = Trace(
            schema,
            1,
            0,
            hasher=hasher,
            consolidated=consolidate,
            files=RunFiles(None, lambda: tmp_path),
        )
        made.add(pa.table([[number, 7], [1, 1], [1, 1]], schema=schema), 0)
        kept.append(made)
    assert len(list(Path("/dev/fd").iterdir())) <= opened + 1
    assert [made.all(1).rows()["c0"].to_pylist().count(7) for made in kept].count(0) == 0
    assert sum(made.bytes for made in kept) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows_of_a_key", [1, 4, 700])
def test_keys_are_found_in_long_runs_where_they_are(
    monkeypatch: pytest.MonkeyPatch, rows_of_a_key: int
) -> None:
    """Wherever a key should be by its hash, and however far it is from there."""
    monkeypatch.setattr(hashed, "_LONG_RUN", 1)
    monkeypatch.setattr(hashed, "_MANY_KEYS", 1)
    rng = np.random.default_rng(rows_of_a_key)
    some = rng.integers(0, 2**64, 70_000 // rows_of_a_key, np.uint64)
    hashes = np.sort(np.repeat(some, rows_of_a_key))
    ends = np.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)
    crowd = np.sort(np.concatenate([hashes, np.arange(5_000, dtype=np.uint64), ends]))
    asked = np.concatenate([some[:500], some[:500] + np.uint64(1), ends, crowd[:200]])
    keys = hashed.distinct(asked)
    assert keys.tolist() == sorted(set(asked.tolist()))
    for one in (hashes, crowd, crowd[:1], crowd[-70:]):
        assert (hashed._begins(one, keys) == np.searchsorted(one, keys)).all()


@pytest.mark.parametrize("rows", [1, 7, 300, 20_000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
def test_keys_of_which_a_run_has_few_are_sifted_and_those_that_it_has_are_found(
    rows: int, share: float
) -> None:
    """Where the keys' rows lie is what two binary searches say, however many of the keys are there."""
    rng = np.random.default_rng(rows)
    hashes = np.sort(rng.integers(0, 2**64 - 1, rows, np.uint64, endpoint=True))
    hashes[rows // 2 : rows // 2 + 20] = hashes[rows // 2]
    keys = rng.integers(0, 2**64 - 1, 1000, np.uint64, endpoint=True)
    there = rng.choice(hashes, int(len(keys) * share))
    keys = np.unique(np.concatenate([keys[len(there) :], there]))
    numbers = np.arange(rows)
    batch = pa.record_batch({"c0": numbers, "mz_time": numbers, "mz_diff": numbers})
    run = Run(batch, 1, hashes, (0, rows))
    for _ in range(2):
        begin, end, order = run.places(keys, 1, hasher)
        first, last = np.searchsorted(hashes, keys), np.searchsorted(hashes, keys, "right")
        assert order is None
        assert (end - begin == last - first).all()
        assert (begin[end > begin] == first[last > first]).all()
    asked = run._sifted(hashes, keys, 1)
    if share <= 0.1 and len(keys) >= hashed._SIEVED_KEYS:
        assert asked is not None
        assert len(asked) < len(keys) / 2
    if share == 1.0:
        assert asked is None


def test_what_comes_in_stretches_is_in_order_once() -> None:
    rng = np.random.default_rng(7)
    stretches = [np.sort(rng.integers(0, 300, 200, np.uint64)) for _ in range(5)]
    for parts in (stretches, stretches[:1], [], [rng.integers(0, 2**64, 500, np.uint64)] * 2):
        given = np.concatenate([np.empty(0, np.uint64), *parts])
        assert hashed.distinct(given).tolist() == sorted(set(given.tolist()))


@pytest.mark.parametrize("count", [0, 1, 2, 9, 1000])
@pytest.mark.parametrize("bits", [2, 12, 64])
def test_hashes_are_put_in_order_and_equal_ones_stay_as_they_came(count, bits):
    rng = np.random.default_rng(count + bits)
    low = rng.integers(0, 2**bits - 1, count, np.uint64, endpoint=True)
    # Hashes that differ only where the places of so many are put, too; and stretches that are in order already.
    for hashes in (low, low << np.uint64(60), np.sort(low), np.concatenate([np.sort(low), low])):
        wanted = np.argsort(hashes, kind="stable")
        places, ordered = in_order(hashes)
        assert places.tolist() == wanted.tolist()
        assert ordered.tolist() == hashes[wanted].tolist()
