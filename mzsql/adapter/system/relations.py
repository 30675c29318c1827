"""The builtin relations whose rows are computed when they are read, as Arrow columns.

Promise: rows are those of the moment of the read, as the session sees the catalog whose statement it is. Only the
columns that a query looks at are computed; columns that are expensive only for the rows that its conditions leave. Relations
that depend on the catalog's definitions alone are computed once and cached until a definition changes, because tools
ask for the same columns with every statement. The cache is bounded in bytes, least recently used first. Columns are
cached, rows are not: another column of a cached relation takes another pass over the catalog.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec
import pyarrow as pa

from mzsql.adapter.system.rows import DEFINED, PASSING
from mzsql.adapter.system.source import READER, Source
from mzsql.catalog.builtin import Builtin
from mzsql.catalog.plugin_relations import plugin_rows
from mzsql.compute.peek.row_reads import narrowed
from mzsql.location import Whereabouts, default_registry
from mzsql.repr.errors import InternalError
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import arrow_schema
from mzsql.transform.row_wise import Condition

#: The bound of the cache, in bytes.
KEPT_BYTES = 64 * 1024 * 1024
#: Expensive columns are computed for all rows, and cached, if conditions leave more than this share of the rows.
_MOST = 0.5
#: Which definitions columns are computed from: the catalog's version of them, and the generation of the plugin registry.
_Moment = tuple[int, int]


#: A relation, and the schema of temporary objects of whoever reads it.
_Kept = tuple[GlobalId, str]


class _Columns(msgspec.Struct, frozen=True):
    """Some columns of a relation, by position, and its number of rows."""

    moment: _Moment
    rows: int
    made: Mapping[int, pa.Array]

    @property
    def size(self) -> int:
        return sum(one.nbytes for one in self.made.values())


class SystemRelations:
    """The builtin relations whose rows are computed when read; implements the `SystemRows` of peeks. Thread-safe.

    Args:
        source: what the rows are computed from.
        kept_bytes: the bound of the cache, in bytes.
    """

    def __init__(self, source: Source, kept_bytes: int = KEPT_BYTES) -> None:
        self._source = source
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._kept: OrderedDict[_Kept, _Columns] = OrderedDict()
        self._bytes = 0

    def is_derived(self, builtin: Builtin) -> bool:
        """Whether a builtin source's rows are computed here."""
        name = builtin.full_name
        return builtin.plugin is not None or name in DEFINED or name in PASSING

    def derived(
        self,
        builtin: Builtin,
        columns: Set[int] | None = None,
        conditions: Sequence[Condition] = (),
    ) -> pa.Table:
        """A builtin source's present rows.

        Args:
            builtin: the source.
            columns: positions of the columns that are read; None: all. Others may come as NULL.
            conditions: what the rows that matter meet. Others are left out where that saves expensive values.

        Returns:
            Columns c0, c1, … in the Arrow types of the source's columns.

        Raises:
            InternalError: nothing yields the source's rows.
        """
        if builtin.plugin is not None:
            at = self._source.env.locations
            return plugin_rows(builtin.plugin, Whereabouts(at.blob, at.consensus, at.oracle))
        if builtin.desc is None or not self.is_derived(builtin):
            raise InternalError(f"nothing yields the rows of {builtin.full_name}")
        schema = arrow_schema(builtin.desc.typ.columns)
        wanted = frozenset(range(len(schema))) if columns is None else frozenset(columns)
        if builtin.full_name in DEFINED:
            found = self._of_definitions(builtin, wanted, schema, conditions)
        else:
            found, _ = self._made(builtin, wanted, schema, (0, 0), conditions)
        arrays = [
            found.made[i] if i in found.made else pa.nulls(found.rows, field.type)
            for i, field in enumerate(schema)
        ]
        return pa.table(arrays, names=schema.names)

    def _of_definitions(
        self,
        builtin: Builtin,
        wanted: frozenset[int],
        schema: pa.Schema,
        conditions: Sequence[Condition],
    ) -> _Columns:
        """Columns from the cache, with those that it lacked added to it."""
        moment = self._moment()
        key = builtin.id, self._temporary()
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.moment == moment:
                self._kept.move_to_end(key)
                if wanted <= kept.made.keys():
                    return kept
            else:
                kept = None
        had = {} if kept is None else kept.made
        found, whole = self._made(builtin, wanted - had.keys(), schema, moment, conditions)
        if not whole or self._moment() != moment:
            # The rows may mix definitions from before and after a change; cached columns are from before it, and of all
            # rows.
            if kept is None:
                return found
            return self._made(builtin, wanted, schema, moment, conditions)[0]
        found = msgspec.structs.replace(found, made={**had, **found.made})
        self._keep(key, found)
        return found

    def _moment(self) -> _Moment:
        return self._source.env.catalog.definitions, default_registry().generation

    def _temporary(self) -> str:
        """The schema of the session that reads, where there are temporary objects of its own."""
        own = READER.get()
        return own if own in self._source.env.catalog.state.temporary else ""

    def _keep(self, key: _Kept, columns: _Columns) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._bytes += columns.size - (0 if old is None else old.size)
            self._kept[key] = columns
            while self._bytes > self._kept_bytes:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.size

    @undisturbed()
    def _made(
        self,
        builtin: Builtin,
        wanted: Set[int],
        schema: pa.Schema,
        moment: _Moment,
        conditions: Sequence[Condition],
    ) -> tuple[_Columns, bool]:
        """Some columns, computed from the present rows, and whether these are all rows."""
        make = DEFINED.get(builtin.full_name) or PASSING[builtin.full_name]
        source = msgspec.structs.replace(self._source, temporary=self._temporary())
        looked_at = wanted | {one.column for one in conditions}
        rows = _Rows.of(make(source), looked_at)
        few = rows.that_matter(wanted, schema, conditions)
        made = {i: few.column(i, schema.field(i).type) for i in wanted}
        return _Columns(moment, few.number, made), few is rows


class _Rows(msgspec.Struct, frozen=True):
    """Rows as they were yielded, by column, without the columns that nobody looks at: of many rows these would be most of the memory, and
    the collector of garbage would look at each again and again.

    Attributes:
        number: how many rows there are.
        values: the columns that somebody looks at, by position.
        late: those with expensive values, in all rows or in those of users' objects, which stand together at one end.
    """

    number: int
    values: dict[int, list[Any]]
    late: frozenset[int]

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]], looked_at: Set[int]) -> _Rows:
        values: dict[int, list[Any]] = {i: [] for i in looked_at}
        adders = [(i, column.append) for i, column in values.items()]
        number = 0
        for row in rows:
            number += 1
            for i, add in adders:
                add(row[i])
        ends = {i: (column[0], column[-1]) for i, column in values.items() if column}
        late = frozenset(i for i, both in ends.items() if any(map(callable, both)))
        return cls(number, values, late)

    def that_matter(
        self, wanted: Set[int], schema: pa.Schema, conditions: Sequence[Condition]
    ) -> _Rows:
        """The rows that meet conditions; these rows themselves where leaving others out would not save expensive values.

        Conditions on expensive columns are not looked at.
        """
        cheap = [one for one in conditions if one.column not in self.late]
        if not cheap or not self.number or self.late.isdisjoint(wanted):
            return self
        asked = {one.column: schema.field(one.column).type for one in cheap}
        table = pa.table(
            [pa.array(range(self.number)), *(self.column(i, typ) for i, typ in asked.items())],
            names=["row", *(f"c{i}" for i in asked)],
        )
        left = narrowed(table, cheap).column("row").to_pylist()
        if len(left) > _MOST * self.number:
            return self
        few = {i: [self.values[i][row] for row in left] for i in wanted}
        return _Rows(len(left), few, self.late)

    def column(self, place: int, typ: pa.DataType) -> pa.Array:
        """A column; its expensive values are computed."""
        return pa.array([one() if callable(one) else one for one in self.values[place]], typ)
