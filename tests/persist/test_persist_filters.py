"""Filters and columns pushed down: the same rows as filtering everything, and fewer bytes."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from persist_model import ManualClock, counted, updates

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, ReadStats, SchemaMismatch, Settings, SnapshotSplit

_TEXTS = [
    p + s for p in ("", "a" * 70, "\U0010ffff" * 70, "ü") for s in ("", "a", "b", "\U0010ffff")
]
_MOMENTS = st.integers(-(2**40), 2**40)
_NUMBERS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, 2.0, math.inf, math.nan])


def _decimals(places, digits):
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(
        lambda i: decimal.Decimal(i).scaleb(-places, decimal.Context(prec=100))
    )


def _scalars(type_, values):
    return values.map(lambda v: pa.scalar(v, type_))


#: Values of each type, either as Python has them or as Arrow scalars.
TYPES = {
    pa.int64(): st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint8(): st.integers(0, 255),
    pa.uint64(): st.integers(0, 3) | st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.decimal128(38, 3): _decimals(3, 38) | _decimals(3, 2),
    pa.decimal128(7, 2): _decimals(2, 7),
    pa.date32(): st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    pa.timestamp("us"): st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(
        timezones=st.just(dt.UTC), min_value=dt.datetime(1900, 1, 1)
    ),
    pa.timestamp("ns"): _scalars(pa.timestamp("ns"), _MOMENTS),
    pa.timestamp("s"): _scalars(pa.timestamp("s"), _MOMENTS.map(lambda v: v % 2**31)),
    pa.time64("us"): st.times(),
    pa.duration("us"): _scalars(pa.duration("us"), _MOMENTS),
    pa.string(): st.sampled_from(_TEXTS) | st.text(max_size=3),
    pa.large_string(): st.sampled_from(_TEXTS),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\xff" * 70, b"\xff" * 70 + b"\x00"])
    | st.binary(max_size=3),
    pa.float64(): _NUMBERS | st.floats(),
    pa.float32(): _NUMBERS | st.floats(width=32),
}


def plain(value):
    """What a value compares by: moments as integers, NaN beyond all other numbers."""
    if isinstance(value, pa.Scalar):
        return value.value
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value


def kept(value, ranges):
    if value is None:
        return (None, None) in ranges
    return any(
        (lo is not None or hi is not None)
        and (lo is None or plain(lo) <= plain(value))
        and (hi is None or plain(value) <= plain(hi))
        for lo, hi in ranges
    )


@st.composite
def cases(draw):
    """Types of two columns, rows of several appends, filters, and how the shard is kept."""
    types = [draw(st.sampled_from(list(TYPES))) for _ in range(2)]
    pools = [draw(st.lists(TYPES[t], min_size=1, max_size=8)) for t in types]
    values = [st.none() | st.sampled_from(pool) for pool in pools]
    appends = draw(
        st.lists(st.lists(st.tuples(*values), min_size=1, max_size=12), min_size=1, max_size=5)
    )
    filters = {}
    for name, type_, pool in zip("ab", types, pools, strict=True):
        if draw(st.booleans()):
            end = st.none() | st.sampled_from(pool) | TYPES[type_]
            filters[name] = draw(st.lists(st.tuples(end, end), max_size=3))
    how = draw(
        st.fixed_dictionaries(
            {"inline": st.booleans(), "compact": st.booleans(), "keyed": st.booleans()}
        )
    )
    return types, appends, filters, how


@settings(max_examples=60, deadline=None)
@given(case=cases(), span=st.tuples(st.integers(0, 5), st.integers(0, 6)))
def test_filters_keep_what_filtering_everything_keeps(case, span):
    types, appends, filters, how = case
    schema = pa.schema([("a", types[0]), ("b", types[1]), ("id", pa.int64())])
    client = PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=ManualClock(),
        settings=Settings(
            inline_bytes=65536 if how["inline"] else 0,
            row_group_rows=3,
            keyed_row_group_rows=3,
            keyed_row_group_rows_least=1,
            page_rows=2,
            part_bytes=64 * 2**20,
        ),
        background=False,
    )
    key = KeySpec(("a",)) if how["keyed"] else None
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    history = []
    for time, rows in enumerate(appends):
        numbered = [(a, b, len(history) + i, time, 1) for i, (a, b) in enumerate(rows)]
        history += numbered
        write.compare_and_append(updates(numbered, schema), expected_upper=time, new_upper=time + 1)
    if how["compact"]:
        client.maintain(write.shard_id, full=True)

    def wanted(lower, upper):
        return Counter(
            i
            for a, b, i, t, _ in history
            if lower <= t < upper
            and all(kept(v, filters[n]) for n, v in (("a", a), ("b", b)) if n in filters)
        )

    def ids(*tables):
        return Counter(i for table in tables for i in table["id"].to_pylist())

    last = len(appends) - 1
    at = min(span[0], last)
    answer = wanted(0, at + 1)
    assert ids(read.snapshot_arrow(at, filters=filters)) == answer
    assert ids(read.snapshot_arrow(at, columns=["id"], filters=filters)) == answer
    stream = read.snapshot_reader(at, columns=["id"], filters=filters)
    assert ids(stream.read_all()) == answer
    splits = [
        SnapshotSplit.from_bytes(split.to_bytes(), blob=client.blob)
        for split in read.snapshot(at, 2, columns=["id"], filters=filters)
    ]
    assert ids(*(split.to_arrow() for split in splits)) == answer
    assert ids(*(split.to_reader().read_all() for split in splits)) == answer
    assert ids(*(split.inline_table() for split in splits)) == answer
    parts = read.parts(at, filters=filters)
    found = [ref.to_arrow(filters=filters) for ref in parts]
    assert ids(*(t.filter(pc.field("mz_time") <= at) for t in found)) == answer
    lower, upper = min(span), min(max(span), last + 1)
    if lower < upper:
        assert ids(read.updates(lower, upper, filters=filters)) == wanted(lower, upper)
        refs = read.parts_between(lower, upper, filters=filters)
        found = [ref.to_arrow(columns=["id"]) for ref in refs]
        assert wanted(lower, upper) - ids(*found) == Counter()
    if at < last:
        table, frontier = next(read.listen(at, columns=["id"], filters=filters))
        assert (ids(table), frontier) == (wanted(at + 1, last + 1), last + 1)
    if key is not None and "a" in filters:
        rest = {name: ranges for name, ranges in filters.items() if name != "a"}
        found = read.snapshot_arrow(at, key_ranges=filters["a"], filters=rest)
        assert ids(found) == answer


def test_a_range_the_wrong_way_round_hides_no_other_range():
    client = PersistClient(
        MemBlob(), MemConsensus(), settings=Settings(inline_bytes=0), background=False
    )
    schema = pa.schema([("k", pa.int64())])
    write, read = client.open_shard(client.new_shard_id(), schema, key=KeySpec(("k",)))
    write.compare_and_append(updates([(0, 0, 1), (1, 0, 1)], schema), expected_upper=0, new_upper=1)
    found = read.snapshot_arrow(0, key_ranges=[(0, 0), (1, -1)])
    assert found["k"].to_pylist() == [0]


WIDE = pa.schema([("k", pa.int64()), ("day", pa.date32()), ("s", pa.string()), ("x", pa.float64())])


def wide_shard(key=None, **more):
    """A shard of a part whose days ascend and whose times do, too, and of one with later days."""
    client = PersistClient(
        MemBlob(),
        MemConsensus(),
        settings=Settings(inline_bytes=0, row_group_rows=1000, **more),
        background=False,
    )
    write, read = client.open_shard(client.new_shard_id(), WIDE, key=key)
    first = dt.date(2020, 1, 1)
    for part in range(2):
        rows = [
            (
                i * 7919 % 10007,
                first + dt.timedelta(part * 1000 + i // 100),
                f"{i * 2654435761 % 2**32:x}" * 3,
                i / 3,
                part * 100 + i // 100,
                1,
            )
            for i in range(10_000)
        ]
        write.compare_and_append(
            updates(rows, WIDE), expected_upper=part * 100, new_upper=part * 100 + 100
        )
    return client, write, read


def test_filters_and_columns_read_less():
    client, _, read = wide_shard()

    def cost(**how):
        """What a reader that knows no footer reads."""
        with PersistClient(client.blob, client.consensus, background=False) as other:
            stats = ReadStats()
            table = other.open_reader(read.shard_id).snapshot_arrow(199, stats=stats, **how)
            return table.num_rows, stats

    rows, whole = cost()
    assert (rows, whole.parts, whole.row_groups) == (20_000, 2, 20)
    week = {"day": [(dt.date(2020, 1, 5), dt.date(2020, 1, 11))]}
    rows, stats = cost(filters=week)
    assert rows == 700
    assert (stats.parts, stats.parts_skipped) == (1, 1)
    assert (stats.row_groups, stats.row_groups_skipped) == (2, 8)
    assert stats.bytes < whole.bytes / 6
    rows, narrow = cost(filters=week, columns=["k"])
    assert rows == 700
    assert narrow.bytes < stats.bytes * 2 / 3
    _, column = cost(columns=["k"])
    assert column.bytes < whole.bytes / 2
    assert cost(filters={"x": [(100.0, 101.0)]})[1].row_groups == 2  # floats by row groups only
    assert cost(filters={"day": [(None, dt.date(2019, 1, 1))]})[1].bytes == 0
    assert len(read.parts(199, filters=week)) == 1
    assert len(read.parts_between(100, 200, filters=week)) == 0
    assert [split.rows for split in read.snapshot(199, filters=week)] == [10_000]


def test_times_read_less():
    client, _, read = wide_shard()
    everything = counted(read.updates(0, 200))
    whole, delta, early = ReadStats(), ReadStats(), ReadStats()
    assert counted(read.updates(0, 200, stats=whole)) == everything
    found = read.updates(150, 155, stats=delta)
    assert counted(found) == {r: d for r, d in everything.items() if 150 <= r[-1] < 155}
    assert (delta.row_groups, delta.row_groups_skipped) == (1, 9)
    assert delta.bytes < whole.bytes / 8
    assert read.snapshot_arrow(9, stats=early).num_rows == 1000
    assert (early.row_groups, early.row_groups_skipped) == (1, 9)
    # Once since has passed, an old part's times stand at it.
    read.downgrade_since(150)
    client.maintain(read.shard_id, full=True)
    found = counted(read.updates(151, 200))
    assert found == {r: d for r, d in everything.items() if r[-1] > 150}
    assert read.snapshot_arrow(199).num_rows == 20_000


def test_filters_that_do_not_fit_are_refused():
    client, _, read = wide_shard()
    nested = pa.schema([("l", pa.list_(pa.int64())), ("n", pa.int64())])
    _, other = client.open_shard(
        client.new_shard_id(), nested, key=KeySpec(("l",), additive=("n",))
    )
    for filters, text in [
        ({"absent": [(1, 2)]}, 'no column "absent"'),
        ({"mz_time": [(1, 2)]}, 'no column "mz_time"'),
        ({"k": [("x", "y")]}, "does not fit"),
        ({"k": [1, 2]}, "does not fit"),
        ({"k": [(1, 2, 3)]}, "does not fit"),
        ({"k": [(2**70, None)]}, "does not fit"),
        ([("k", [(1, 2)])], "mapping"),
    ]:
        for act in (
            lambda f: read.snapshot_arrow(0, filters=f, timeout=0),
            lambda f: read.snapshot_reader(0, filters=f, timeout=0),
            lambda f: read.snapshot(0, filters=f, timeout=0),
            lambda f: read.parts(0, filters=f, timeout=0),
            lambda f: read.parts_between(0, 1, filters=f, timeout=0),
            lambda f: read.updates(0, 1, filters=f, timeout=0),
            lambda f: read.listen(0, filters=f, timeout=0),
        ):
            with pytest.raises(SchemaMismatch, match=text):
                act(filters)
    with pytest.raises(SchemaMismatch, match="no order"):
        other.snapshot_arrow(0, filters={"l": [([1], [2])]}, timeout=0)
    with pytest.raises(SchemaMismatch, match="additive"):
        other.snapshot_arrow(0, filters={"n": [(1, 2)]}, timeout=0)
    with pytest.raises(SchemaMismatch, match="twice"):
        read.snapshot_arrow(0, columns=["k", "k"], timeout=0)


def test_footers_are_kept_in_bounded_memory(monkeypatch):
    client, write, _ = wide_shard()
    footers = sum(p.footer_size for b in client.inspect(write.shard_id).trace for p in b.parts)
    for limit, least, most in ((footers, 0, 0), (footers * 2 // 3, footers // 3, footers)):
        monkeypatch.setattr("mzsql.persist.fetch._FOOTER_BYTES", limit)
        with PersistClient(client.blob, client.consensus, background=False) as other:
            read = other.open_reader(write.shard_id)
            costs = []
            for _ in range(2):
                stats = ReadStats()
                read.snapshot_arrow(199, columns=["k"], stats=stats)
                costs.append(stats.bytes)
            if limit == footers:
                bare = costs[1]
                assert costs[0] == bare + footers
            assert bare + least <= costs[1] <= bare + most
