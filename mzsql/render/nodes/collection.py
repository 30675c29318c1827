"""The output of a rendered node, and where lookup keys for it come from.

Promise: a `Collection` is a relation of a statement (updates in a step, contents otherwise) with the arrangements in
which it is available. A `Trace` says, for expressions over a collection's columns, in which relations on the driver
their values are found. It never omits a value, but may name more. Thereby a step reads only rows that it can touch.
Each source also says which inputs must have changed for values to come from it: a side of a join that did not change
looks nothing up on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mzsql.expr import spell
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Scalar, inlined, permute, substitute, support
from mzsql.render.rendered import Front, KeySource, Lookup, When
from mzsql.render.statement import columns_of
from mzsql.repr.types import ColumnType


@dataclass(frozen=True)
class Source:
    """Values of expressions over a relation's columns. Without expressions nothing is known, and every value may occur.

    Values come from here only if at least one relation of each set in `when` has rows.
    """

    relation: str
    exprs: tuple[Scalar, ...]
    columns: tuple[ColumnType, ...]
    when: When = frozenset()


EVERYTHING = Source("", (), ())

#: Where values come from. A source may cover only the first of the expressions.
Sources = tuple[Source, ...]
Trace = Callable[[tuple[Scalar, ...]], Sources]


def unknown(_: tuple[Scalar, ...]) -> Sources:
    """The trace of a collection that cannot be traced."""
    return (EVERYTHING,)


def nothing(_: tuple[Scalar, ...]) -> Sources:
    """The trace of a collection without rows."""
    return ()


def relation_trace(relation: str, columns: Sequence[ColumnType]) -> Trace:
    """The values are in this relation, in the same columns."""

    def trace(exprs: tuple[Scalar, ...]) -> Sources:
        return (Source(relation, exprs, tuple(columns)),) if exprs else (EVERYTHING,)

    return trace


def arranged_trace(
    relation: str, columns: Sequence[ColumnType], permutation: Sequence[int]
) -> Trace:
    """The values are in an arrangement, in which column i of the collection is at ``permutation[i]``."""
    mapping = dict(enumerate(permutation))

    def trace(exprs: tuple[Scalar, ...]) -> Sources:
        if not exprs:
            return (EVERYTHING,)
        return (Source(relation, tuple(permute(e, mapping) for e in exprs), tuple(columns)),)

    return trace


def through_mfp(trace: Trace, mfp: MapFilterProject) -> Trace:
    """The trace of an MFP's output, given that of its input."""
    current = inlined(mfp.expressions, mfp.input_arity)
    outputs = [current[c] for c in mfp.projection]

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        seen = tuple(substitute(e, outputs) for e in exprs)
        if any(c >= mfp.input_arity for e in seen for c in support(e)):
            return (EVERYTHING,)  # too large to be written out
        return trace(seen)

    return traced


def within(trace: Trace, arity: int) -> Trace:
    """A trace for rows whose first `arity` columns are those of another collection, and whose other columns are
    unknown.
    """

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        known = prefix(exprs, range(arity))
        return trace(known) if known else (EVERYTHING,)

    return traced


def driven(trace: Trace, by: frozenset[str]) -> Trace:
    """The same trace, for values that come only if one of these relations has rows."""

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        return tuple(replace(one, when=one.when | {by}) for one in trace(exprs))

    return traced


def prefix(exprs: tuple[Scalar, ...], columns: Sequence[int] | range) -> tuple[Scalar, ...]:
    """The leading expressions that read only these columns."""
    known = []
    for expr in exprs:
        if not support(expr) <= set(columns):
            break
        known.append(expr)
    return tuple(known)


def either(*traces: Trace) -> Trace:
    """The values are in any of several places."""

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        return tuple(dict.fromkeys(source for trace in traces for source in trace(exprs)))

    return traced


class Lookups:
    """Collects the lookups of a step while it is rendered."""

    def __init__(self) -> None:
        #: for each arrangement the sources of keys, each with the alternative conditions under which keys come from it
        self._sources: dict[str, dict[Source, list[When]]] = {}
        self._due: set[str] = set()
        self._fronts: dict[str, tuple[Front, ...]] = {}
        self._beside: dict[str, tuple[str, ...]] = {}

    def beside(self, arrangement: str, others: Iterable[str]) -> None:
        """Declare that an arrangement's rows are only useful with those that `others` have for the same keys, so these
        are looked up too.
        """
        self._beside[arrangement] = tuple(others)

    def bound(self, arrangement: str, fronts: tuple[Front, ...]) -> None:
        """Declare that these rows of each key are enough."""
        self._fronts[arrangement] = fronts

    def need(self, arrangement: str, sources: Sources) -> None:
        """Declare that an arrangement is looked up by the keys that `sources` give."""
        known = self._sources.setdefault(arrangement, {})
        for source in sources:
            whens = known.setdefault(replace(source, when=frozenset()), [])
            if source.when not in whens:
                whens.append(source.when)
        for other in self._beside.get(arrangement, ()):
            self.need(other, sources)

    def need_due(self, arrangement: str) -> None:
        """Declare that the temporal events of an arrangement are read that happen within the step."""
        self._sources[arrangement] = {}
        self._due.add(arrangement)

    @property
    def due(self) -> frozenset[str]:
        """The arrangements of temporal events."""
        return frozenset(self._due)

    def ordered(self) -> tuple[Lookup, ...]:
        """All lookups; an arrangement comes after those that its sources name, where that is possible."""
        left = dict(self._sources)
        made: list[Lookup] = []
        while left:
            ready = next((name for name in left if not self._waits(name, left)), next(iter(left)))
            keys = tuple(key_source(x, whens) for x, whens in left.pop(ready).items())
            fronts = self._fronts.get(ready, ())
            made.append(Lookup(ready, keys, due=ready in self._due, fronts=fronts))
        return tuple(made)

    def _waits(self, name: str, left: Mapping[str, Mapping[Source, list[When]]]) -> bool:
        return any(x.relation in left and x.relation != name for x in left[name])


def key_source(source: Source, whens: Sequence[When]) -> KeySource:
    """A source in the driver's form, with its expressions in DuckDB's dialect."""
    arguments = columns_of(source.columns)
    asts = tuple(spell.value(e, arguments, Engine.DUCKDB) for e in source.exprs)
    return KeySource(source.relation, asts, () if frozenset() in whens else tuple(whens))


@dataclass
class Arranged:
    """A collection arranged by a key: relations with columns key ++ value, good rows only.

    Attributes:
        key: expressions over the collection's columns.
        permutation: for the collection's column i its position in key ++ value.
        thinning: the collection's columns that are values.
        columns: types of key ++ value.
        full: contents; in a step: the state below `lower` and the step's updates, with times.
        delta: in a step: the updates only.
        name: the arrangement that `state` comes from; None if there is no state to look up.
        trace: of the state's rows, over the collection's columns.
        state: in a step: the state only, as looked up in the arrangement `name`.
    """

    key: tuple[Scalar, ...]
    permutation: tuple[int, ...]
    thinning: tuple[int, ...]
    columns: tuple[ColumnType, ...]
    full: str
    delta: str = ""
    name: str | None = None
    trace: Trace = unknown
    state: str = ""

    def __post_init__(self) -> None:
        assert bool(self.delta) == bool(self.state), (
            "a step reads an arrangement's state and updates"
        )


@dataclass
class Collection:
    """The output of a node.

    Attributes:
        relation: its name in the statement, with columns c0 …, mz_error if `errors`, mz_time in a step, mz_diff.
        columns: types of c0 ….
        errors: whether there is a column mz_error.
        trace: of the relation's good rows.
        arranged: functions that make its arrangements, by key.
    """

    relation: str
    columns: tuple[ColumnType, ...]
    errors: bool
    trace: Trace = unknown
    arranged: dict[tuple[Scalar, ...], Callable[[], Arranged]] = field(default_factory=dict)
