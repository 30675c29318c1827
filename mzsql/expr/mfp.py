"""`MapFilterProject`: the row-wise part of a plan in a normal form.

Promise: over rows of `input_arity` columns, append `expressions` in order (the i-th may read all columns before it, and
becomes column ``input_arity + i``), keep the rows for which every predicate is true, and output the columns in
`projection`. A predicate carries the earliest position at which it can be evaluated: the number of columns that must
exist.

Every builder returns a new MFP with the meaning of its steps in order. `optimize` never evaluates an expression that
can fail where it was not evaluated before: what is guarded by AND, OR, COALESCE or a branch stays there, and a
predicate stays behind those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.canonical import can_fail, ordered, rank
from mzsql.expr.memo import memo
from mzsql.expr.scalar import (
    Call,
    Column,
    If,
    Literal,
    LiteralError,
    Scalar,
    Unmaterializable,
    children,
    permute,
    substitute,
    support,
    walk,
    with_children,
)

#: In these functions another argument can decide, so that the failure of any argument may not count.
_FORGIVING = frozenset({"and", "or"})


def _surely_evaluated(expr: Scalar) -> frozenset[Scalar]:
    """The parts of an expression, including itself, whose failure makes it fail."""
    if isinstance(expr, Column | Literal | LiteralError):
        return frozenset()
    kids = children(expr)
    if isinstance(expr, Call) and expr.func in _FORGIVING and kids:
        below = [frozenset.intersection(*map(_surely_evaluated, kids))]
    else:
        below = [
            _surely_evaluated(kid)
            for position, kid in enumerate(kids)
            if not _only_where_it_stands(expr, position)
        ]
    return frozenset({expr}).union(*below)


def _only_where_it_stands(expr: Scalar, position: int) -> bool:
    """Whether the argument at ``position`` may fail without making the expression fail."""
    if isinstance(expr, Call) and expr.func in _FORGIVING:
        return True
    # The condition, and COALESCE's first argument, are always evaluated.
    return position > 0 and (
        isinstance(expr, If) or (isinstance(expr, Call) and expr.func == "coalesce")
    )


class MapFilterProject(msgspec.Struct, frozen=True, tag="mfp", cache_hash=True, gc=False):
    """A map, a filter and a projection over rows of ``input_arity`` columns."""

    input_arity: int
    expressions: tuple[Scalar, ...] = ()
    predicates: tuple[tuple[int, Scalar], ...] = ()
    projection: tuple[int, ...] = ()

    @staticmethod
    def identity(arity: int) -> MapFilterProject:
        """The MFP that changes nothing."""
        return MapFilterProject(arity, (), (), tuple(range(arity)))

    @property
    def is_identity(self) -> bool:
        """Whether rows pass unchanged."""
        return (
            not self.expressions
            and not self.predicates
            and self.projection == tuple(range(self.input_arity))
        )

    @property
    def output_arity(self) -> int:
        """The number of output columns."""
        return len(self.projection)

    def map(self, exprs: Iterable[Scalar]) -> MapFilterProject:
        """Append columns; each expression may read the output columns and those appended before it."""
        expressions = list(self.expressions)
        place = dict(enumerate(self.projection))
        for expr in exprs:
            moved = permute(expr, place)
            place[len(place)] = self.input_arity + len(expressions)
            expressions.append(moved)
        return MapFilterProject(
            self.input_arity, tuple(expressions), self.predicates, tuple(place.values())
        )

    def filter(self, preds: Iterable[Scalar]) -> MapFilterProject:
        """Keep the rows for which all of ``preds``, over the output columns, are true."""
        place = dict(enumerate(self.projection))
        found = [pred for _, pred in self.predicates]
        found.extend(permute(pred, place) for pred in preds)
        return msgspec.structs.replace(self, predicates=_in_order(found))

    def project(self, columns: Iterable[int]) -> MapFilterProject:
        """Output only the given output columns, in that order."""
        return msgspec.structs.replace(
            self, projection=tuple(self.projection[column] for column in columns)
        )

    def optimize(self) -> MapFilterProject:
        """The same MFP with common subexpressions computed once, expressions used once inlined, and unused ones
        removed.
        """
        mfp = self
        if not mfp.expressions and not mfp.predicates:
            return mfp
        while True:
            smaller = _drop_unused(_inline(_share(mfp)))
            if smaller == mfp:
                return mfp
            if _size(smaller) >= _size(mfp):
                return smaller
            mfp = smaller


def placed(pred: Scalar) -> tuple[int, Scalar]:
    """The predicate with the earliest position at which it can be evaluated."""
    return max((column + 1 for column in support(pred)), default=0), pred


def _in_order(predicates: Iterable[Scalar]) -> tuple[tuple[int, Scalar], ...]:
    """The predicates with their positions, in canonical order, without duplicates.

    One that can fail stays behind all that stood before it, which may drop the row.
    """
    latest = 0
    at: dict[Scalar, int] = {}
    for pred in predicates:
        position, _ = placed(pred)
        if position < latest and _may_error(pred):
            position = latest
        latest = max(latest, position)
        at.setdefault(pred, position)
    found = ordered(at, lambda pred: (at[pred], rank(pred)), _may_error)
    return tuple((at[pred], pred) for pred in found)


def compose(first: MapFilterProject, then: MapFilterProject) -> MapFilterProject:
    """One MFP that does ``first``, then ``then``.

    Raises:
        ValueError: ``then`` takes another number of columns than ``first`` puts out.
    """
    if first.output_arity != then.input_arity:
        msg = f"an MFP over {then.input_arity} columns cannot follow one of {first.output_arity}"
        raise ValueError(msg)
    return (
        first.map(then.expressions)
        .filter(pred for _, pred in then.predicates)
        .project(then.projection)
    )


def _never(_rel: mir.Relation) -> bool:
    return False


def extract_mfp(
    rel: mir.Relation, until: Callable[[mir.Relation], bool] = _never
) -> tuple[MapFilterProject, mir.Relation]:
    """The Maps, Filters and Projects at the top of a plan as one MFP, and the relation below them.

    Args:
        rel: the plan.
        until: stops at a node for which it is true.
    """
    chain: list[mir.Map | mir.Filter | mir.Project] = []
    while isinstance(rel, mir.Map | mir.Filter | mir.Project) and not until(rel):
        chain.append(rel)
        rel = rel.input
    mfp = MapFilterProject.identity(mir.arity(rel))
    for node in reversed(chain):
        match node:
            case mir.Map(scalars=scalars):
                mfp = mfp.map(scalars)
            case mir.Filter(predicates=predicates):
                mfp = mfp.filter(predicates)
            case mir.Project(outputs=outputs):
                mfp = mfp.project(outputs)
    return mfp, rel


def to_relation(mfp: MapFilterProject, rel: mir.Relation) -> mir.Relation:
    """The MFP as nodes over ``rel``: Map, Filter, Project, each only where needed."""
    if mfp.expressions:
        rel = mir.Map(rel, mfp.expressions)
    if mfp.predicates:
        rel = mir.Filter(rel, tuple(pred for _, pred in mfp.predicates))
    if mfp.projection != tuple(range(mfp.input_arity + len(mfp.expressions))):
        rel = mir.Project(rel, mfp.projection)
    return rel


# --- optimization -------------------------------------------------------------------------------


def _size(mfp: MapFilterProject) -> int:
    nodes = sum(1 for expr in mfp.expressions for _ in walk(expr))
    return nodes + sum(1 for _, pred in mfp.predicates for _ in walk(pred))


def _may_error(expr: Scalar, known: dict[Scalar, bool] | None = None) -> bool:
    """Whether the evaluation can fail; ``known`` caches the answer for parts."""
    known = memo("may_error") if known is None else known
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
        elif isinstance(node, LiteralError) or (isinstance(node, Call) and can_fail(node)):
            known[stack.pop()] = True
        elif pending := [kid for kid in children(node) if kid not in known]:
            stack.extend(pending)
        else:
            known[stack.pop()] = any(known[kid] for kid in children(node))
    return known[expr]


def _is_now(expr: Scalar) -> bool:
    """Whether this is ``mz_now()``, which is never shared: it costs nothing, and a temporal filter must compare it as
    it stands.
    """
    return isinstance(expr, Unmaterializable) and expr.func == "mz_now"


class _Shared:
    """Expressions with one column for each."""

    def __init__(self, input_arity: int) -> None:
        self.arity = input_arity
        self.expressions: list[Scalar] = []
        self._columns: dict[Scalar, int] = {}
        self._fails: dict[Scalar, bool] = {}

    def column(self, expr: Scalar) -> int:
        """The column of an expression, appended if it is new; literals are not shared, since they cost nothing."""
        if isinstance(expr, Column):
            return expr.index
        known = self._columns.get(expr)
        if known is None or isinstance(expr, Literal):
            known = self.arity + len(self.expressions)
            self.expressions.append(expr)
            self._columns[expr] = known
        return known

    def memoize(self, expr: Scalar, *, eager: bool = True) -> Scalar:
        """The expression with its parts replaced by their columns."""
        if isinstance(expr, Column | Literal | LiteralError) or _is_now(expr):
            return expr
        known = self._columns.get(expr)
        if known is not None:
            return Column(known)
        if isinstance(expr, If):
            # Only some rows take a branch, so branches are computed in place.
            condition = self.memoize(expr.condition, eager=eager)
            taken = with_children(expr, [condition, expr.then, expr.otherwise])
            return self._shared(taken, expr, eager)
        kids = children(expr)
        if eager and isinstance(expr, Call) and expr.func in _FORGIVING:
            # A part that all operands of AND or OR evaluate: where it fails, all of them do, so that computing it early
            # raises no error that the operator would have hidden.
            surely = _surely_evaluated(expr) - {expr}
            for part in walk(kids[0]):
                if part in surely:
                    self.memoize(part)
        parts: list[Scalar] = []
        for position, kid in enumerate(kids):
            there = eager and not _only_where_it_stands(expr, position)
            parts.append(self.memoize(kid, eager=there))
        return self._shared(with_children(expr, parts) if kids else expr, expr, eager)

    def _shared(self, new: Scalar, expr: Scalar, eager: bool) -> Scalar:
        """The column of an expression whose parts are columns; the expression itself where it can fail and need not be
        evaluated.
        """
        if not eager and new not in self._columns and _may_error(expr, self._fails):
            return new
        return Column(self.column(new))


def _share(mfp: MapFilterProject) -> MapFilterProject:
    """The MFP with a column for every part of every expression, equal parts shared, in order of evaluation."""
    shared = _Shared(mfp.input_arity)
    place: dict[int, int] = {column: column for column in range(mfp.input_arity)}
    predicates: dict[Scalar, None] = {}
    # A predicate's parts come before the expressions that it may spare a row.
    due = sorted(mfp.predicates, key=lambda entry: entry[0])[::-1]

    def ask(position: int) -> None:
        while due and due[-1][0] <= position:
            predicates[shared.memoize(permute(due.pop()[1], place))] = None

    for offset, expr in enumerate(mfp.expressions):
        ask(mfp.input_arity + offset)
        parts = shared.memoize(permute(expr, place))
        place[mfp.input_arity + offset] = shared.column(parts)
    ask(mfp.input_arity + len(mfp.expressions))
    return MapFilterProject(
        mfp.input_arity,
        tuple(shared.expressions),
        _in_order(predicates),
        tuple(place[column] for column in mfp.projection),
    )


def _inline(mfp: MapFilterProject) -> MapFilterProject:
    """The MFP with literals, and columns used once, inlined."""
    uses = [0] * (mfp.input_arity + len(mfp.expressions))

    def count(expr: Scalar) -> None:
        for node in walk(expr):
            if isinstance(node, Column):
                uses[node.index] += 1

    for expr in mfp.expressions:
        count(expr)
    for _, pred in mfp.predicates:
        count(pred)
    for column in mfp.projection:
        uses[column] += 1
    replacement: list[Scalar] = [Column(column) for column in range(mfp.input_arity)]
    expressions: list[Scalar] = []
    for offset, expr in enumerate(mfp.expressions):
        column = mfp.input_arity + offset
        inlined = substitute(expr, replacement)
        expressions.append(inlined)
        keep = uses[column] > 1 and not isinstance(inlined, Literal | Column)
        replacement.append(Column(column) if keep else inlined)
    predicates = _in_order(substitute(pred, replacement) for _, pred in mfp.predicates)
    return msgspec.structs.replace(mfp, expressions=tuple(expressions), predicates=predicates)


def _drop_unused(mfp: MapFilterProject) -> MapFilterProject:
    """The MFP without unread expressions, its predicates as early as possible."""
    wanted: set[int] = set(mfp.projection)
    for _, pred in mfp.predicates:
        wanted |= support(pred)
    for offset in range(len(mfp.expressions) - 1, -1, -1):
        if mfp.input_arity + offset in wanted:
            wanted |= support(mfp.expressions[offset])
    place: dict[int, int] = {column: column for column in range(mfp.input_arity)}
    expressions: list[Scalar] = []
    for offset, expr in enumerate(mfp.expressions):
        column = mfp.input_arity + offset
        if column in wanted:
            place[column] = mfp.input_arity + len(expressions)
            expressions.append(permute(expr, place))
    return MapFilterProject(
        mfp.input_arity,
        tuple(expressions),
        _in_order(permute(pred, place) for _, pred in mfp.predicates),
        tuple(place[column] for column in mfp.projection),
    )
