"""Parts that travel to another process: all of them together have each update once, at its own time, and no partition has too many."""

from __future__ import annotations

from collections import Counter

import pytest
from persist_model import mem_client
from test_persist_streams import HISTORY, filled

from mzsql.persist import CorruptPart, SchemaMismatch, exchanged_parts
from mzsql.persist.exchanged_parts import ExchangedParts

ROWS = 25


def read_elsewhere(partitions, blob):
    """The rows of partitions, as a process reads them that has their bytes and the store."""
    found = Counter()
    for partition in partitions:
        there = ExchangedParts.from_bytes(partition.to_bytes())
        assert there.blob_url == "file:/somewhere"
        for piece in there.pieces(blob):
            for *row, diff in zip(*(column.to_pylist() for column in piece.columns), strict=True):
                found[tuple(row)] += diff
    return found


def wanted(lower, upper, keep=lambda _: True):
    found = Counter()
    for k, v, time, diff in HISTORY:
        if lower <= time and (upper is None or time < upper) and keep(k):
            found[k, v, time] += diff
    return found


@pytest.mark.parametrize("inline_bytes", [0, 65536])
def test_shares_have_each_update_once(monkeypatch, inline_bytes):
    monkeypatch.setattr(exchanged_parts, "PARTITION_ROWS", ROWS)
    client = mem_client(inline_bytes=inline_bytes, row_group_rows=4, compaction_fanout=1000)
    _, read = filled(client)
    refs = read.parts(29)
    for lower, upper in ((0, None), (7, 20), (29, 30), (40, None)):
        partitions = exchanged_parts.exchanged_parts(
            refs, "file:/somewhere", lower=lower, upper=upper
        )
        assert {partition.shard_id for partition in partitions} == {read.shard_id}
        parts = [partition._data.parts for partition in partitions]
        assert [part for some in parts for part in some] == [ref.part for ref in refs]
        assert all(len(some) == 1 or sum(part.rows for part in some) <= ROWS for some in parts)
        assert 1 < len(partitions) < len(refs)
        found = read_elsewhere(partitions, client.blob)
        assert {row: n for row, n in found.items() if n} == {
            row: n for row, n in wanted(lower, upper).items() if n
        }


def test_a_share_has_what_it_was_made_for_alone():
    client = mem_client(inline_bytes=0, row_group_rows=4, compaction_fanout=1000)
    _, read = filled(client)
    partitions = exchanged_parts.exchanged_parts(
        read.parts(29), "file:/somewhere", columns=["v"], filters={"k": [(3, 5)]}
    )
    (partition,) = partitions
    pieces = list(partition.pieces(client.blob))
    assert {tuple(piece.column_names) for piece in pieces} == {("v", "mz_time", "mz_diff")}
    found = Counter()
    for piece in pieces:
        for row in piece.to_pylist():
            found[row["v"], row["mz_time"]] += row["mz_diff"]
    rows = Counter()
    for k, v, time, diff in HISTORY:
        if 3 <= k <= 5:
            rows[v, time] += diff
    assert {row: n for row, n in found.items() if n} == {row: n for row, n in rows.items() if n}


def test_what_is_no_share_is_refused():
    client = mem_client(inline_bytes=0)
    _, read = filled(client)
    refs = read.parts(29)
    with pytest.raises(SchemaMismatch, match="nowhere"):
        exchanged_parts.exchanged_parts(refs, "file:/somewhere", columns=["nowhere"])
    (partition,) = exchanged_parts.exchanged_parts(refs, "file:/somewhere")
    data = bytearray(partition.to_bytes())
    data[len(data) // 2] ^= 1
    with pytest.raises(CorruptPart):
        ExchangedParts.from_bytes(bytes(data))
    assert exchanged_parts.exchanged_parts([], "file:/somewhere") == []
