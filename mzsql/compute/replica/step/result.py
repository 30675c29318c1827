"""The result of a step, divided by output.

Promise: `StepResult.rows` has all updates of an output, in the columns and types of its shard, both those that the
statement computed and those that are rows of a relation unchanged (`mzsql.render.rewrites.straight`), whose columns are
passed on without copying.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mzsql.render.rendered import StepOutput
from mzsql.render.rewrites.straight import Straight


class StepResult:
    """The updates that a step makes.

    Args:
        made: the statement's result: mz_tag, c0 …, mz_error, mz_time, mz_diff, or by tag the updates of each output, in the
            columns that it has; None if no statement ran.
        straight: outputs that are rows of a relation unchanged.
        relations: these relations, by name.
    """

    def __init__(
        self,
        made: pa.Table | Mapping[int, pa.Table] | None,
        straight: Sequence[Straight] = (),
        relations: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self._made = made if isinstance(made, pa.Table) else None
        self._by_tag: Mapping[int, pa.Table] = made if isinstance(made, Mapping) else {}
        self._straight = straight
        self._relations = relations or {}
        self._known: dict[int, pa.Table] = {}
        self._tags: npt.NDArray[np.int32] | None = None
        self._nested = self._made is not None and any(
            pa.types.is_nested(one) for one in self._made.schema.types
        )

    def rows(self, output: StepOutput, schema: pa.Schema) -> pa.Table:
        """The updates of an output, in a schema that ends with mz_time and mz_diff. They may repeat or cancel."""
        known = self._known.get(output.tag)
        if known is None:
            known = self._known[output.tag] = self._rows(output, schema)
        return known

    def _rows(self, output: StepOutput, schema: pa.Schema) -> pa.Table:
        pieces = []
        for one in self._straight:
            if one.tag == output.tag:
                names = _with_error(one, schema)
                pieces.append(_named(self._relations[one.relation], names, schema))
        own = self._by_tag.get(output.tag)
        if own is not None:
            pieces.append(own)
        mine = self._tagged(output.tag)
        # The statement has no columns for an output that has no rows in it.
        if mine is not None and mine.num_rows:
            pieces.append(_named(mine, result_names(output, schema), schema))
        if not pieces:
            return schema.empty_table()
        return pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)

    def _tagged(self, tag: int) -> pa.Table | None:
        """The statement's rows of an output. They are mostly adjacent, as parts of a UNION ALL come one after another,
        and then not copied.
        """
        if self._made is None:
            return None
        if self._tags is None:
            self._tags = self._made.column("mz_tag").to_numpy()
        places = np.flatnonzero(self._tags == tag)
        if not len(places):
            return None
        first, last = int(places[0]), int(places[-1])
        # DuckDB refuses nested columns that are slices of an array.
        if last - first + 1 == len(places) and not self._nested:
            return self._made.slice(first, len(places))
        return self._made.take(pa.array(places))


def _with_error(straight: Straight, schema: pa.Schema) -> list[str | None]:
    """For each column of the schema the relation's column; None for the error, which such a row does not have."""
    *columns, time, diff = straight.columns
    none = [None] * (len(schema) - len(straight.columns))
    return [*columns, *none, time, diff]


def _named(rows: pa.Table, names: Sequence[str | None], schema: pa.Schema) -> pa.Table:
    columns = [
        pa.nulls(rows.num_rows, field.type) if name is None else _cast(rows.column(name), field)
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    return column if column.type == field.type else column.cast(field.type)


def result_names(output: StepOutput, schema: pa.Schema) -> list[str]:
    """The names of an output's columns in the statement's result."""
    columns = [f"c{position}" for position in output.positions]
    return [*columns, *schema.names[len(columns) :]]
