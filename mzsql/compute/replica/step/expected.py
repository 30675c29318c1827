"""What the relations of a dataflow's first steps will probably be like, judged by what its inputs and arrangements hold.

Promise: nothing here has to be true, and little is read: bounds come from some rows of what is in memory, and
otherwise from the footers of stored parts, which of arrangements tell of keys only. A lean text made for what is
expected is run by a step only if what the step meets is like that (`mzsql.render.rewrites.templates`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.step.relation_facts import kind_of, measured
from mzsql.compute.replica.step.statistics import known_of
from mzsql.compute.replica.step.texts import empty_relation
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, ColumnSummary, PartRef
from mzsql.render.facts import Fact, coarse, coarse_rows, null
from mzsql.render.rewrites.lean import Relation
from mzsql.render.rewrites.templates import StepTemplate
from mzsql.render.statement import ERROR
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import ColumnType

#: Columns of which no footer tells what steps need.
_NOT_STORED = frozenset((TIME_COLUMN, ERROR))
#: So many rows of each relation are expected; the text is made for more (`mzsql.render.rewrites.lean.widened`).
EXPECTED_ROWS = 1_000
#: So many rows of an arrangement in memory are looked at. They are in the order of a hash, so they are like the others.
LOOKED_AT = 10_000
#: Of so many parts of a relation, the largest, the footers are read.
PARTS = 4


def expected_relations(dataflow: Dataflow, template: StepTemplate) -> dict[str, Relation] | None:
    """What is expected of each relation that a step reads; None if that is too little for a lean text.

    Raises:
        MissingPart, CorruptPart, LocationError: from reading the footers.
    """
    lower, step = dataflow.lower(), template.step
    if lower is None or step is None or dataflow.rendered.recursions:
        return None
    found: dict[str, Relation] = {}
    arrangements = dataflow.readable()
    inputs = {f"delta_{one.spec.id}": one for one in dataflow.inputs}
    for name in step.reads:
        schema = empty_relation(dataflow, name).schema
        asked = template.asked.get(name, set())
        source = inputs.get(name)
        if source is not None:
            parts = source.parts(lower - 1)
            if not sum(part.rows for part in parts):
                # Whatever comes into an empty table, nothing tells of it now.
                return None
            stored = _stored(parts)
            found[name] = _expected(schema, source.spec.columns, stored, asked, diff=(-1, 1))
        else:
            one = arrangements[name]
            diff = (1, 1) if one.desc.additive else (-1, 1)
            stored = _held(one, lower - 1) or _stored(one.parts(lower - 1))
            expected = _expected(schema, one.desc.columns, stored, asked, diff=diff)
            found[name] = _with_partial_sums(expected, one, stored)
    return found


@dataclass(frozen=True)
class _Stored:
    """What a relation holds: the summaries of columns of some parts, and rows."""

    parts: Sequence[Mapping[str, ColumnSummary]]
    rows: Sequence[pa.Table]


def _stored(parts: Sequence[PartRef]) -> _Stored:
    largest = sorted(parts, key=lambda part: part.rows)[-PARTS:]
    footers = [{one.stats.column: one for one in p.columns()} for p in largest if not p.inline]
    return _Stored(footers, [part.to_arrow() for part in largest if part.inline])


def _held(arrangement: Arrangement, at: Timestamp) -> _Stored | None:
    """Some rows of an arrangement's trace; None if it is not in memory or has none."""
    trace = arrangement.trace(at) if arrangement.hot.loaded else None
    if trace is None:
        return None
    with arrangement.hot.reading():
        runs = sorted(trace.runs, key=lambda run: run.rows.num_rows)[-PARTS:]
        rows = [pa.Table.from_batches([run.rows.slice(0, LOOKED_AT)]) for run in runs]
    return _Stored((), rows) if any(one.num_rows for one in rows) else None


def _expected(
    schema: pa.Schema,
    columns: Sequence[ColumnType],
    stored: _Stored,
    asked: set[str],
    *,
    diff: tuple[int, int],
) -> Relation:
    never_null = {f"c{place}" for place, one in enumerate(columns) if not one.nullable}
    names = [field.name for field in schema if field.name in asked]
    values = pa.schema([schema.field(name) for name in names if name != DIFF_COLUMN])
    values = pa.schema([field for field in values if field.name not in _NOT_STORED])
    rows = [table.select(values.names).cast(values) for table in stored.rows]
    known = known_of(values, EXPECTED_ROWS, stored.parts, rows).columns
    facts: dict[str, Fact] = {}
    for field in schema:
        kind = kind_of(field.type)
        if field.name not in asked or not (stored.parts or rows):
            facts[field.name] = Fact(kind, fails=False)
        elif field.name == DIFF_COLUMN:
            facts[field.name] = coarse(kind, *diff, nulls=False)
        elif field.name == TIME_COLUMN:
            facts[field.name] = Fact(kind, nulls=False, fails=False)
        elif field.name == ERROR:
            # Errors are rare; the full text is there for them.
            facts[field.name] = null(kind)
        else:
            fact = known[field.name]
            facts[field.name] = replace(fact, nulls=fact.nulls and field.name not in never_null)
    return Relation(facts, coarse_rows(EXPECTED_ROWS))


def _with_partial_sums(expected: Relation, arrangement: Arrangement, stored: _Stored) -> Relation:
    """What is expected of an arrangement: of its sums, that partial ones are added which may have either sign, and that
    those which are equal in all rows in memory, as counts of values that are never NULL are, stay so.
    """
    sums = {f"c{place}" for place in arrangement.desc.additive}
    facts = {
        name: replace(fact, low=-fact.size, high=fact.size, other=False)
        if name in sums and fact.size is not None
        else fact
        for name, fact in expected.columns.items()
    }
    rows = () if stored.parts else stored.rows
    asked = {name for name in sums if expected.columns[name].size is not None}
    seen = [measured(one, asked) for one in rows if one.num_rows]
    same = functools.reduce(Relation.with_, seen).same if seen else {}
    return replace(expected, columns=facts, same=same)
