"""What is known of stored relations without reading them: from the footers of their parts, and from rows in memory.

Promise: what `known_of` says of a relation is true of each of its updates, at whatever time: bounds, NULLs, numbers
of rows. It is said coarsely (`mzsql.render.facts.coarse`), so that a statement made for it remains valid until an
input has grown a thousandfold. Parts never change, so a footer is read once. Nothing is said of columns without
usable statistics (texts, floats, files written without them).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from mzsql.compute.replica.step.relation_facts import kind_of, measured
from mzsql.persist import ColumnSummary, PartRef
from mzsql.render.facts import (
    DATE,
    FIRST_DAY,
    LAST_DAY,
    Fact,
    coarse,
    coarse_rows,
    decimal,
    null,
    one_of,
)
from mzsql.render.rewrites.lean import Relation

#: For how many parts the footers' summaries are kept.
_PARTS = 50_000


class Footers:
    """Caches what the footers of parts say. Thread-safe."""

    def __init__(self, capacity: int = _PARTS) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, dict[str, ColumnSummary]] = OrderedDict()

    def columns(self, part: PartRef) -> dict[str, ColumnSummary]:
        """A summary of each column of the part's object; empty if the part is inline.

        Raises:
            MissingPart, CorruptPart, LocationError: as `PartRef.columns`.
        """
        key = part.blob_key
        if key is None:
            return {}
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        found = {one.stats.column: one for one in part.columns()}
        with self._lock:
            self._kept[key] = found
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return found

    def bytes(self, parts: Sequence[PartRef], columns: frozenset[str]) -> int:
        """The encoded bytes of some columns of the parts; the whole size of a part whose footer does not say."""
        total = 0
        for part in parts:
            found = self.columns(part)
            total += sum(found[name].bytes for name in columns if name in found) or part.bytes
        return total


def known_of(
    schema: pa.Schema,
    rows: int,
    parts: Sequence[Mapping[str, ColumnSummary]],
    tables: Sequence[pa.Table],
) -> Relation:
    """What is known of a relation.

    Args:
        schema: its columns, with mz_diff.
        rows: upper bound on its number of rows.
        parts: what its parts' footers say.
        tables: its other rows.
    """
    names = frozenset(schema.names)
    here = [measured(one, names) for one in tables if one.num_rows]
    facts = {}
    for field in schema:
        found = [one.columns[field.name] for one in here]
        if parts:
            found.append(_of_parts(field, [one.get(field.name) for one in parts]))
        facts[field.name] = one_of(found) if found else null(kind_of(field.type))
    # At least 1, since a statement for no rows at all would leave the relation out.
    return Relation(facts, coarse_rows(max(1, rows)))


def _of_parts(field: pa.Field, columns: Sequence[ColumnSummary | None]) -> Fact:
    """What several parts' statistics together say of a column."""
    kind = kind_of(field.type)
    stats = [None if one is None else one.stats for one in columns]
    known = [one for one in stats if one is not None and one.known]
    if len(known) < len(stats):
        return Fact(kind, fails=False)
    plain = Fact(kind, nulls=any(one.nulls for one in known), fails=False)
    lows = [one.lo for one in known if one.lo is not None]
    highs = [one.hi for one in known if one.hi is not None]
    if not lows or not highs:
        return null(kind)
    typ = field.type
    whole = kind == DATE or pa.types.is_integer(typ) or pa.types.is_decimal(typ)
    if kind is None or not whole:
        return plain
    low, high = min(int(one) for one in lows), max(int(one) for one in highs)
    if kind == DATE:
        if low < FIRST_DAY or high > LAST_DAY:
            return plain
        return replace(plain, low=Fraction(FIRST_DAY), high=Fraction(LAST_DAY))
    shape = decimal(kind)
    scale = shape[1] if shape else 0
    return coarse(kind, _scaled(low, scale), _scaled(high, scale), nulls=plain.nulls)


def _scaled(digits: int, scale: int) -> int | Decimal:
    """The number in a decimal's statistics, which give its digits without the point."""
    if not scale:
        return digits
    return Decimal((int(digits < 0), tuple(int(d) for d in str(abs(digits))), -scale))
