"""What is known of the inputs of a query without reading them: from the footers of their parts, and of rows that are here.

Promise: `known_of` says of a relation only what is true of each of its updates, whatever their times: bounds, NULLs and numbers of rows,
coarsely (`mzsql.render.facts.coarse`), so that a statement made for them serves until an input has grown a thousandfold. A part never
changes, so what its footer tells is asked for once. What has no usable statistics (texts, floats, what others wrote without them) is
said nothing of.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from mzsql.compute.replica.values import kind_of, measured
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
from mzsql.render.lean import Relation

#: Of so many parts it is kept what their footers tell.
_PARTS = 50_000


class Footers:
    """What the footers of parts tell, kept. Thread-safe."""

    def __init__(self, capacity: int = _PARTS) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, dict[str, ColumnSummary]] = OrderedDict()

    def columns(self, part: PartRef) -> dict[str, ColumnSummary]:
        """Of each column that the part's object has; nothing where that is not to be had.

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
        """How many encoded bytes some columns of the parts take; of a part that does not tell: all it has."""
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
        schema: its columns, mz_diff among them.
        rows: how many rows it has at most.
        parts: what its parts' footers tell.
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
    # Of a relation without any row, too: it is read like any other.
    return Relation(facts, coarse_rows(max(1, rows)))


def _of_parts(field: pa.Field, columns: Sequence[ColumnSummary | None]) -> Fact:
    """What several parts' statistics say of a column."""
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
    """The number that a decimal's statistics stand for, which are its digits without the point."""
    if not scale:
        return digits
    return Decimal((int(digits < 0), tuple(int(d) for d in str(abs(digits))), -scale))
