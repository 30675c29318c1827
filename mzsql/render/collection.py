"""What a rendered node puts out, and where its keys come from.

Promise: a `Collection` is a relation of a statement (updates in a step, contents otherwise) with the arrangements in which it is
available. A `Trace` says, for expressions over a collection's columns, in which relations that the driver already has their
values are found: it never leaves a value out, and may name more. That is how a step reads only the rows it can touch. Each place also
says which inputs must have changed for values to come from there: a side of a join that did not change looks nothing up in the other.
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
    """Values of expressions over the columns of a relation; without expressions nothing is known, every value may occur.

    Of each set in `when` one relation at least must have rows, or no value comes from here.
    """

    relation: str
    exprs: tuple[Scalar, ...]
    columns: tuple[ColumnType, ...]
    when: When = frozenset()


EVERYTHING = Source("", (), ())

#: A source may speak of a prefix of the expressions only.
Sources = tuple[Source, ...]
Trace = Callable[[tuple[Scalar, ...]], Sources]


def unknown(_: tuple[Scalar, ...]) -> Sources:
    """The trace of what cannot be traced."""
    return (EVERYTHING,)


def nothing(_: tuple[Scalar, ...]) -> Sources:
    """The trace of what has no rows."""
    return ()


def relation_trace(relation: str, columns: Sequence[ColumnType]) -> Trace:
    """The values are found in this relation, by the same columns."""

    def trace(exprs: tuple[Scalar, ...]) -> Sources:
        return (Source(relation, exprs, tuple(columns)),) if exprs else (EVERYTHING,)

    return trace


def arranged_trace(
    relation: str, columns: Sequence[ColumnType], permutation: Sequence[int]
) -> Trace:
    """The values are found in an arrangement, where column i of the collection stands at ``permutation[i]``."""
    mapping = dict(enumerate(permutation))

    def trace(exprs: tuple[Scalar, ...]) -> Sources:
        if not exprs:
            return (EVERYTHING,)
        return (Source(relation, tuple(permute(e, mapping) for e in exprs), tuple(columns)),)

    return trace


def through_mfp(trace: Trace, mfp: MapFilterProject) -> Trace:
    """A trace of what an MFP puts out, from the trace of what goes in."""
    current = inlined(mfp.expressions, mfp.input_arity)
    outputs = [current[c] for c in mfp.projection]

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        seen = tuple(substitute(e, outputs) for e in exprs)
        if any(c >= mfp.input_arity for e in seen for c in support(e)):
            return (EVERYTHING,)  # too large to be written out
        return trace(seen)

    return traced


def within(trace: Trace, arity: int) -> Trace:
    """A trace for rows whose first `arity` columns are another's, and of whose further columns nothing is known."""

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        known = prefix(exprs, range(arity))
        return trace(known) if known else (EVERYTHING,)

    return traced


def driven(trace: Trace, by: frozenset[str]) -> Trace:
    """The same values, which only come where one of these relations has rows."""

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        return tuple(replace(one, when=one.when | {by}) for one in trace(exprs))

    return traced


def prefix(exprs: tuple[Scalar, ...], columns: Sequence[int] | range) -> tuple[Scalar, ...]:
    """The leading expressions that read these columns only."""
    known = []
    for expr in exprs:
        if not support(expr) <= set(columns):
            break
        known.append(expr)
    return tuple(known)


def either(*traces: Trace) -> Trace:
    """The values are found in any of several places."""

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        return tuple(dict.fromkeys(source for trace in traces for source in trace(exprs)))

    return traced


class Lookups:
    """The lookups of a step, as they become known."""

    def __init__(self) -> None:
        #: for each arrangement the places of keys, and when values come from there: under any of these
        self._sources: dict[str, dict[Source, list[When]]] = {}
        self._due: set[str] = set()
        self._fronts: dict[str, tuple[Front, ...]] = {}
        self._beside: dict[str, tuple[str, ...]] = {}

    def beside(self, arrangement: str, others: Iterable[str]) -> None:
        """What is read of an arrangement means something with what others have of the same keys alone: they are read where it is."""
        self._beside[arrangement] = tuple(others)

    def bound(self, arrangement: str, fronts: tuple[Front, ...]) -> None:
        """Of each key of an arrangement these rows are enough."""
        self._fronts[arrangement] = fronts

    def need(self, arrangement: str, sources: Sources) -> None:
        """An arrangement is read by the keys that `sources` have."""
        known = self._sources.setdefault(arrangement, {})
        for source in sources:
            whens = known.setdefault(replace(source, when=frozenset()), [])
            if source.when not in whens:
                whens.append(source.when)
        for other in self._beside.get(arrangement, ()):
            self.need(other, sources)

    def need_due(self, arrangement: str) -> None:
        """Of an arrangement of events those are read that happen within the step."""
        self._sources[arrangement] = {}
        self._due.add(arrangement)

    @property
    def due(self) -> frozenset[str]:
        """The arrangements of events that are read."""
        return frozenset(self._due)

    def ordered(self) -> tuple[Lookup, ...]:
        """All of them, an arrangement after those that its sources name where that is possible."""
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
    """Spelled for the driver."""
    arguments = columns_of(source.columns)
    asts = tuple(spell.value(e, arguments, Engine.DUCKDB) for e in source.exprs)
    return KeySource(source.relation, asts, () if frozenset() in whens else tuple(whens))


@dataclass
class Arranged:
    """A collection by key: relations with columns key ++ value, good rows only.

    Attributes:
        key: over the collection's columns.
        permutation: for the collection's column i its position in key ++ value.
        thinning: the collection's columns that are values.
        columns: types of key ++ value.
        full: contents; in a step: the state below `lower` and the step's updates, with times.
        delta: in a step: the updates alone.
        state: in a step: the state alone; read for lookups from arrangement `name`.
        name: the arrangement whose rows `state` is made of; None where there is no state to look up.
        trace: of the state's rows, over the collection's columns.
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
    """What a node puts out.

    Attributes:
        relation: its name in the statement: columns c0 …, mz_error where `errors`, mz_time in a step, mz_diff.
        columns: types of c0 ….
        errors: whether there is a column mz_error.
        trace: of the relation's good rows.
        arranged: makers of its arrangements, by key.
    """

    relation: str
    columns: tuple[ColumnType, ...]
    errors: bool
    trace: Trace = unknown
    arranged: dict[tuple[Scalar, ...], Callable[[], Arranged]] = field(default_factory=dict)
