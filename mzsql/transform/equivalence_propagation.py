"""EquivalencePropagation: of equal columns the first is read everywhere, and a column known to be a literal is replaced
by it.

Promise: only references change, never the output columns. Joins then carry each value once, and filters on equal
columns become equal, so that one of them suffices. A filter that states what is known is itself left unchanged. What a
filter says of a computed value (``a + b = 5``, ``a > 3``) is known above it as well, and there the value is not
computed again.
Source: Materialize's transform `EquivalencePropagation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.expr.mfp import extract_mfp, to_relation
from mzsql.expr.parts import part_of, parts
from mzsql.expr.typing import relation_type
from mzsql.repr.types import BOOLEAN, ColumnType
from mzsql.transform.canonicalize_mfp import canonical
from mzsql.transform.context import OptimizerContext
from mzsql.transform.known_values import (
    EXACT,
    Facts,
    as_type,
    by_type,
    computed_said,
    equal_columns,
    literals_said,
    places_of,
    plain,
)
from mzsql.transform.scalars import simplify
from mzsql.transform.visit import filtered, kept, replace_inputs


def equivalence_propagation(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Read the first of equal columns."""
    return _settled(rel, ctx, lift=False)


def lift_fixed_keys(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """As `equivalence_propagation`; also, parts of a group key that are literals are moved above the Reduce."""
    return _settled(rel, ctx, lift=True)


def _settled(rel: mir.Relation, ctx: OptimizerContext, *, lift: bool) -> mir.Relation:
    """Repeat the pass while it changes something: once the first columns are read, more may be known."""
    known = _Pass(ctx, lift=lift)
    while (new := known.visit(rel, {})[0]) != rel:
        rel = new
    return rel


def project_firsts(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Where a join's own columns are output, output the first of equal ones for all of them, so that the others need
    not be carried.
    """
    known = _Pass(ctx, lift=False)
    while (new := _firsts_projected(rel, known)) != rel:
        rel = new
    return rel


def _firsts_projected(rel: mir.Relation, known: _Pass) -> mir.Relation:
    mfp, below = extract_mfp(rel)
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [_firsts_projected(kid, known) for kid in kids])
    if not isinstance(below, mir.Join) or isinstance(below.implementation, mir.IndexedFilter):
        return rel if new is below else to_relation(mfp, new)
    # The rewritten relation knows most about which of its columns are equal.
    facts = known.visit(new, {})[1]
    if facts is None:
        return to_relation(mfp, new)
    width = mfp.input_arity
    outputs = tuple(facts.puts[c] if c < width else c for c in mfp.projection)
    return to_relation(canonical(msgspec.structs.replace(mfp, projection=outputs)), new)


class _Found(NamedTuple):
    """The rewritten relation, and what holds in its rows, given what is known of the bindings that it reads; whether a
    group key in it has a part that is a literal.
    """

    new: mir.Relation
    facts: Facts | None
    rel: mir.Relation
    around: tuple[Facts | None, ...]
    fixed: bool


_UNBOUND = Facts(())
#: What holds in the rows of bindings; None if a binding has no rows, so that everything holds.
_Locals = Mapping[int, Facts | None]
_Seen = tuple[mir.Relation, Facts | None]


class _Pass:
    """The traversals of one run; with `lift`, parts of group keys that are literals move above their Reduce."""

    def __init__(self, ctx: OptimizerContext, *, lift: bool) -> None:
        self._lift = lift
        self._ctx = ctx
        self._to_fixpoint = ctx.features.enable_letrec_fixpoint_analysis
        self._parts = parts()
        # Without a key to be lifted a part is rewritten alike with and without `lift`.
        self._known: dict[tuple[int, ...], _Found] = memo("equivalences")
        self._lifted: dict[tuple[int, ...], _Found] = memo("equivalences, lifted")
        #: Whether the part that is visited has a key to be lifted, as far as it was seen.
        self._fixed = False

    def visit(self, rel: mir.Relation, locals_: _Locals) -> _Seen:
        """The rewritten relation, and what holds in its rows; None if it has no rows, in which everything holds."""
        # The result depends on the relation and on what is known of the bindings that it reads.
        around: tuple[Facts | None, ...] = ()
        if locals_ and (reads := (self._parts.get(id(rel)) or part_of(rel, self._parts)).order):
            around = tuple([locals_.get(local, _UNBOUND) for local in reads])
        key = (id(rel), *map(id, around))
        found = self._known.get(key)
        if self._lift and (found is None or found.fixed):
            found = self._lifted.get(key)
        if found is None:
            beside, self._fixed = self._fixed, False
            new, facts = self._visited(rel, locals_)
            # The entry keeps the objects whose ids are in the key alive, so that no other object gets the same id.
            found = _Found(kept(rel, new), facts, rel, around, self._fixed)
            (self._lifted if self._lift and self._fixed else self._known)[key] = found
            self._fixed = beside
        if found.fixed:
            self._fixed = True
        return found[:2]

    def _visited(self, rel: mir.Relation, locals_: _Locals) -> _Seen:
        # By class, as in `mir.inputs`.
        if type(rel) is mir.Get:
            if isinstance(rel.id, int) and rel.id in locals_:
                return rel, locals_[rel.id]
            return rel, plain(rel.typ.arity)
        if type(rel) is mir.Let:
            value, of_value = self.visit(rel.value, locals_)
            inside = {**locals_, rel.id: of_value and _one_of_equals(of_value)}
            body, of_body = self.visit(rel.body, inside)
            return mir.Let(rel.id, value, body), of_body
        if type(rel) is mir.LetRec:
            return self._recursion(rel, locals_)
        kids = mir.inputs(rel)
        seen = [self.visit(kid, locals_) for kid in kids]
        rel = replace_inputs(rel, kids, [part for part, _ in seen])
        facts = [known for _, known in seen if known is not None]
        if type(rel) is mir.Union:
            return rel, _union(facts, mir.arity(rel)) if facts else None
        if len(facts) < len(seen):
            return rel, None
        if type(rel) is mir.Filter:
            return _filter(rel, facts[0], self._ctx)
        if type(rel) is mir.Reduce:
            fixed = _fixed_keys(rel, facts[0])
            if fixed:
                self._fixed = True
                if self._lift:
                    return _without_fixed(rel, fixed, facts[0])
            return _reduce(rel, facts[0])
        return _node(rel, facts)

    def _recursion(self, rel: mir.LetRec, locals_: _Locals) -> _Seen:
        """The strongest facts that hold of the bindings while they are empty and after each iteration."""
        # At first the bindings are empty, and of no rows everything holds (None).
        known: dict[int, Facts | None] = dict.fromkeys(rel.ids)
        for _ in range(_ROUNDS):
            derived = dict(known)
            for local, value in zip(rel.ids, rel.values, strict=True):
                facts = self.visit(value, {**locals_, **derived})[1]
                # Like Materialize, derive only literals through recursion, unless the feature flag asks for more.
                if facts is not None and not self._to_fixpoint:
                    facts = Facts(tuple(range(mir.arity(value))), facts.literals)
                derived[local] = facts
            if derived == known:
                break
            known = derived
        else:
            known = {
                local: plain(mir.arity(value))
                for local, value in zip(rel.ids, rel.values, strict=True)
            }
        inside = {**locals_, **known}
        values = tuple(self.visit(value, inside)[0] for value in rel.values)
        body, of_body = self.visit(rel.body, inside)
        return mir.LetRec(rel.ids, values, rel.limits, body), of_body


#: After how many derivations from each other the facts of recursive bindings are given up.
_ROUNDS = 50


def _one_of_equals(facts: Facts) -> Facts:
    """The object that represents these facts in this run, so that a binding with equal facts is recognized."""
    known: dict[tuple[object, ...], Facts] = memo("facts of bindings")
    literals = facts.literals
    computed = frozenset(facts.computed.items())
    return known.setdefault(
        (facts.firsts, facts.puts, computed, *((c, literals[c]) for c in sorted(literals))), facts
    )


def _node(rel: mir.Relation, facts: Sequence[Facts]) -> _Seen:
    """Rewrite a node of another kind, whose inputs are rewritten already and have rows."""
    match rel:
        case mir.Project(outputs=outputs):
            return _project(rel, outputs, facts[0])
        case mir.Map():
            return _map(rel, facts[0])
        case mir.FlatMap(exprs=exprs, output=output):
            width = len(facts[0].firsts)
            args = tuple(facts[0].read(e) for e in exprs)
            firsts = (*facts[0].firsts, *range(width, width + output.arity))
            put = (*facts[0].puts, *firsts[width:])
            known = msgspec.structs.replace(facts[0], firsts=firsts, put=put)
            return msgspec.structs.replace(rel, exprs=args), known
        case mir.Join():
            return _join(rel, _side_by_side(facts))
        case mir.TopK() | mir.Negate() | mir.Threshold() | mir.ArrangeBy():
            return rel, facts[0]
        case mir.Constant():
            return rel, _constant(rel)
        case _:
            return rel, plain(mir.arity(rel))


def _constant(rel: mir.Constant) -> Facts | None:
    """What the rows of a constant have in common."""
    width = rel.typ.arity
    if rel.error is not None or width == 0:
        return plain(width)
    if not rel.rows:
        return None
    columns = [[(type(row[c]), row[c]) for row, _ in rel.rows] for c in range(width)]
    literals: dict[int, sc.Literal] = {}
    firsts: list[int] = []
    for c, values in enumerate(columns):
        kind = rel.typ.columns[c].type
        exact = kind.kind in EXACT
        if exact and values[0][1] is not None and len(set(values)) == 1:
            literals[c] = sc.Literal(rel.rows[0][0][c], kind)
        same = (
            d
            for d in range(c)
            if exact and rel.typ.columns[d].type == kind and columns[d] == values
        )
        firsts.append(next(same, c))
    return Facts(tuple(firsts), literals)


def _union(parts: Sequence[Facts], width: int) -> Facts:
    """What holds in every branch."""
    literals = {
        column: literal
        for column, literal in parts[0].literals.items()
        if all(other.literals.get(column) == literal for other in parts[1:])
    }
    seen: dict[tuple[int, ...], int] = {}
    firsts = tuple(
        seen.setdefault(tuple(part.firsts[column] for part in parts), column)
        for column in range(width)
    )
    computed = {
        expr: literal
        for expr, literal in parts[0].computed.items()
        if all(other.computed.get(expr) == literal for other in parts[1:])
    }
    return Facts(firsts, literals, computed=computed)


def _columns(*inputs: mir.Relation) -> list[ColumnType]:
    """The columns of relations side by side."""
    return [column for part in inputs for column in relation_type(part).columns]


def _filter(rel: mir.Filter, facts: Facts, ctx: OptimizerContext) -> _Seen:
    """Rewrite each predicate by what holds below. What the predicates say is used above, but not in each other.

    If they contradict each other there are no rows.
    """
    columns = relation_type(rel.input).columns
    preds = tuple(dict.fromkeys(facts.read(p) for p in rel.predicates))
    inner = msgspec.structs.replace(
        facts, literals={**facts.literals, **literals_said(preds, columns)}
    )
    pairs = [[a, b] for p in preds for a, b in equal_columns(p, columns)]
    known = inner.equate(pairs, asked=True).with_computed(computed_said(preds))
    if known.literals and any(_is_refuted(known.read(p), columns, ctx) for p in preds):
        return mir.Constant((), relation_type(rel)), None
    return mir.Filter(rel.input, preds), known


def _is_refuted(pred: sc.Scalar, columns: Sequence[ColumnType], ctx: OptimizerContext) -> bool:
    """Whether a predicate, given what is known, reads no column and is not true."""
    if sc.support(pred):
        return False
    match simplify(pred, columns, ctx):
        case sc.Literal(value=value):
            return value is not True
        case _:
            return False


def _project(rel: mir.Project, outputs: Sequence[int], facts: Facts) -> tuple[mir.Relation, Facts]:
    if facts.is_plain and facts.put is None:
        return rel, Facts(places_of(outputs))
    chosen = [facts.firsts[column] for column in outputs]
    literals = {
        position: facts.literals[column]
        for position, column in enumerate(chosen)
        if column in facts.literals
    }
    # Keep the column that was requested, even if another one is known to be equal to it.
    puts = facts.puts
    new = tuple([puts[column] for column in outputs])
    known = Facts(places_of(chosen), literals, places_of(new))
    if facts.computed:
        places: dict[int, int] = {}
        for position, column in enumerate(chosen):
            places.setdefault(column, position)
        known = msgspec.structs.replace(known, computed=facts.moved(places))
    return mir.Project(rel.input, new), known


def _map(rel: mir.Map, facts: Facts) -> tuple[mir.Relation, Facts]:
    firsts, put = list(facts.firsts), list(facts.puts)
    literals = dict(facts.literals)
    done: list[sc.Scalar] = []
    nothing = facts.is_plain
    for scalar in rel.scalars:
        if nothing:
            expr = scalar
        else:
            # What a scalar is made of is read; a scalar as a whole stays what it is, even if its value is known: a column
            # a column, a computed value computed, so that a filter on the value below reads the same one.
            known = Facts(tuple(firsts), literals, computed=facts.computed)
            expr = known.within(scalar)
        nothing = nothing and not isinstance(expr, sc.Column | sc.Literal)
        done.append(expr)
        column = len(firsts)
        firsts.append(firsts[expr.index] if isinstance(expr, sc.Column) else column)
        put.append(put[expr.index] if isinstance(expr, sc.Column) else column)
        if isinstance(expr, sc.Literal) and expr.value is not None and expr.typ.kind in EXACT:
            literals[column] = expr
        elif isinstance(expr, sc.Column) and expr.index in literals:
            literals[column] = literals[expr.index]
        elif expr in facts.computed:
            literals[column] = facts.computed[expr]
    known = Facts(tuple(firsts), literals, tuple(put), facts.computed)
    return mir.Map(rel.input, tuple(done)), known


def _reduce(rel: mir.Reduce, facts: Facts) -> tuple[mir.Relation, Facts]:
    # Key columns stay columns, because an arrangement by a literal is of no use for lookups. They also stay the
    # columns that were requested: a column that a filter makes equal to another may be the one that a join looks up
    # by.
    if facts.is_plain and facts.put is None:
        width = len(rel.group_key)
        rest = range(width, width + len(rel.aggregates))
        return rel, Facts((*(rel.group_key.index(e) for e in rel.group_key), *rest))
    read, put = Facts(facts.firsts), Facts(facts.puts)
    key = tuple(put.read(e) for e in rel.group_key)
    equal = [read.read(e) for e in rel.group_key]
    aggregates = tuple(msgspec.structs.replace(a, expr=facts.read(a.expr)) for a in rel.aggregates)
    rest = range(len(key), len(key) + len(aggregates))
    output = (*(equal.index(e) for e in equal), *rest)
    puts = (*(key.index(e) for e in key), *rest)
    known = ((position, facts.literal(e)) for position, e in enumerate(equal))
    literals = {position: literal for position, literal in known if literal is not None}
    places = {
        e.index: output[position] for position, e in enumerate(equal) if isinstance(e, sc.Column)
    }
    new = msgspec.structs.replace(rel, group_key=key, aggregates=aggregates)
    return new, Facts(output, literals, puts, facts.moved(places))


def _fixed_keys(rel: mir.Reduce, facts: Facts) -> dict[int, sc.Literal]:
    """The parts of a group key that are literals. (Without rows there are no groups, whatever the key.)"""
    if not facts.literals and not facts.computed:
        return {}
    known = ((position, facts.literal(e)) for position, e in enumerate(rel.group_key))
    return {position: literal for position, literal in known if literal is not None}


def _without_fixed(
    rel: mir.Reduce, fixed: Mapping[int, sc.Literal], facts: Facts
) -> tuple[mir.Relation, Facts]:
    """The Reduce by the rest of the key, with the literals added above it."""
    width = len(rel.group_key)
    rest = [position for position in range(width) if position not in fixed]
    key = tuple(rel.group_key[position] for position in rest)
    inner, known = _reduce(msgspec.structs.replace(rel, group_key=key), facts)
    below = len(rest) + len(rel.aggregates)
    scalars = tuple(fixed[position] for position in sorted(fixed))
    place = {position: number for number, position in enumerate(rest)}
    place |= {position: below + number for number, position in enumerate(sorted(fixed))}
    outputs = [place[position] for position in range(width)]
    outputs.extend(range(len(rest), below))
    above, facts_above = _map(mir.Map(inner, scalars), known)
    return _project(mir.Project(above, tuple(outputs)), outputs, facts_above)


def _join(rel: mir.Join, facts: Facts) -> tuple[mir.Relation, Facts]:
    """If one side of an equality is a literal, every side is filtered by it; then no lookup is needed for the equality."""
    if isinstance(rel.implementation, mir.IndexedFilter):
        # The lookup replaces a filter, so its literals are not propagated: what reads it stays as it was written.
        return rel, plain(mir.arity(rel))
    columns = _columns(*rel.inputs)
    pairs = _equated(rel, columns)
    if not isinstance(rel.implementation, mir.Unplanned):
        return rel, facts.equate(pairs)
    kept: list[tuple[sc.Scalar, ...]] = []
    wanted: dict[int, list[sc.Scalar]] = {}
    literals = dict(facts.literals)
    for cls in rel.equivalences:
        found = [
            literals.get(e.index) if isinstance(e, sc.Column) else facts.literal(e) for e in cls
        ]
        literal = next((known for known in found if known is not None), None)
        homes = [] if literal is None else [_home(rel, e) for e in cls]
        if literal is None or None in homes:
            kept.append(cls)
            continue
        for expr, known, home in zip(cls, found, homes, strict=True):
            if known == literal:
                continue
            assert home is not None
            number, start = home
            local = sc.permute(expr, {c: c - start for c in sc.support(expr)})
            equal = sc.Call(f"eq_{literal.typ.kind}", (local, literal), BOOLEAN)
            wanted.setdefault(number, []).append(equal)
            if known is None and isinstance(expr, sc.Column):
                own = as_type(literal, columns[expr.index].type)
                if own is not None:
                    literals[expr.index] = own
    inputs = tuple(filtered(part, wanted.get(i, ())) for i, part in enumerate(rel.inputs))
    rel = msgspec.structs.replace(rel, inputs=inputs, equivalences=tuple(kept))
    return rel, msgspec.structs.replace(facts, literals=literals).equate(pairs)


def _equated(rel: mir.Join, columns: Sequence[ColumnType]) -> list[list[int]]:
    """The columns that a join equates."""
    return [
        same
        for cls in rel.equivalences
        for same in by_type([e.index for e in cls if isinstance(e, sc.Column)], columns)
    ]


def _home(rel: mir.Join, expr: sc.Scalar) -> tuple[int, int] | None:
    """The single input that an expression reads, and where its columns start; None if it reads several."""
    reads = sc.support(expr)
    start = 0
    for number, part in enumerate(rel.inputs):
        end = start + mir.arity(part)
        if reads and all(start <= c < end for c in reads):
            return number, start
        start = end
    return None


def _side_by_side(parts: Sequence[Facts]) -> Facts:
    if all(facts.is_plain and facts.put is None for facts in parts):
        return plain(sum(len(facts.firsts) for facts in parts))
    firsts: list[int] = []
    put: list[int] = []
    literals: dict[int, sc.Literal] = {}
    computed: dict[sc.Scalar, sc.Literal] = {}
    for facts in parts:
        start = len(firsts)
        put.extend(start + column for column in facts.puts)
        firsts.extend(start + column for column in facts.firsts)
        literals.update((start + column, literal) for column, literal in facts.literals.items())
        if facts.computed:
            places = {c: start + c for c in range(len(facts.firsts))}
            computed.update(facts.moved(places) if start else facts.computed)
    return Facts(tuple(firsts), literals, tuple(put), computed)
