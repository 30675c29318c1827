"""LiteralLifting: appends columns that are literals as late as possible.

Promise: the output stays the same. Literals at the end of a relation's columns move above row-wise operators, joins,
TopKs, and unions whose branches agree in them; expressions that read such a column read the literal. So joins, sorts
and groups do not carry them.
Source: Materialize's transform `LiteralLifting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.repr.datum import Datum
from mzsql.repr.types import BOOLEAN, ColumnType, RelationType
from mzsql.transform.fusion import merge_classes
from mzsql.transform.visit import filtered, mapped, project, replace_inputs

_EXTREMES = frozenset({"min", "max"})
Literals = tuple[sc.Literal, ...]
#: A relation without the literals at the end of its columns, and those literals.
Lifted = tuple[mir.Relation, Literals]


def literal_lifting(rel: mir.Relation) -> mir.Relation:
    """Lift literals as far as possible; repeated, because literals that have become adjacent may move on together."""
    while (new := _whole(*_visit(rel, {}))) != rel:
        rel = new
    return rel


def _whole(rel: mir.Relation, literals: Literals) -> mir.Relation:
    """The relation with its literals appended again."""
    if isinstance(rel, mir.Constant) and rel.error is None and literals:
        values = tuple(literal.value for literal in literals)
        rows = tuple(((*row, *values), diff) for row, diff in rel.rows)
        return mir.Constant(rows, _grown(rel.typ, literals))
    return mapped(rel, literals)


def _grown(typ: RelationType, literals: Literals) -> RelationType:
    more = tuple(ColumnType(literal.typ, literal.value is None) for literal in literals)
    return RelationType((*typ.columns, *more), typ.keys)


def _shorter(typ: RelationType, width: int) -> RelationType:
    """The type of the first columns. The omitted ones are constant, so keys hold without them."""
    keys = tuple(tuple(c for c in key if c < width) for key in typ.keys)
    return RelationType(typ.columns[:width], keys)


def _visit(rel: mir.Relation, known: Mapping[int, Literals]) -> Lifted:
    match rel:
        case mir.Let(id=local, value=value, body=body):
            new, literals = _visit(value, known)
            below, rest = _visit(body, {**known, local: literals})
            return mir.Let(local, new, below), rest
        case mir.LetRec():
            return _recursion(rel, known)
        case mir.Get(id=int() as local, typ=typ) if known.get(local):
            literals = known[local]
            narrow = _shorter(typ, typ.arity - len(literals))
            return msgspec.structs.replace(rel, typ=narrow), literals
        case mir.Constant():
            return _constant(rel)
        case mir.Union():
            return _union([_visit(part, known) for part in rel.inputs])
        case mir.Join(implementation=mir.Unplanned()):
            return _join(rel, [_visit(part, known) for part in rel.inputs])
        case mir.Get() | mir.Join() | mir.ArrangeBy():
            kids = mir.inputs(rel)
            return replace_inputs(rel, kids, [_whole(*_visit(kid, known)) for kid in kids]), ()
        case _:
            return _over(rel, *_visit(rel.input, known))


def _recursion(rel: mir.LetRec, known: Mapping[int, Literals]) -> Lifted:
    """Literals leave those bindings that only the body reads."""
    values: list[mir.Relation] = []
    for position, (local, value) in enumerate(zip(rel.ids, rel.values, strict=True)):
        new, literals = _visit(value, known)
        if any(mir.reads_local(earlier, local) for earlier in rel.values[: position + 1]):
            # Values up to here were visited while nothing was known of this one, so they read it with its literals.
            new, literals = _whole(new, literals), ()
        known = {**known, local: literals}
        values.append(new)
    body, literals = _visit(rel.body, known)
    return mir.with_inputs(rel, [*values, body]), literals


def _over(rel: mir.Relation, inner: mir.Relation, literals: Literals) -> Lifted:
    """An operator over its input without that input's literals."""
    match rel:
        case mir.Project(outputs=outputs):
            return _project(inner, literals, outputs)
        case mir.Map(scalars=scalars):
            return _map(inner, literals, scalars)
        case mir.Negate() | mir.Threshold():
            return msgspec.structs.replace(rel, input=inner), literals
    read = _reader(inner, literals)
    match rel:
        case mir.Filter(predicates=predicates):
            return filtered(inner, [sc.substitute(p, read) for p in predicates]), literals
        # A column that is the same in all rows neither divides nor orders them.
        case mir.TopK(group_key=group, order_key=order, limit=limit):
            width = mir.arity(inner)
            return msgspec.structs.replace(
                rel,
                input=inner,
                group_key=tuple(c for c in group if c < width),
                order_key=tuple(o for o in order if o.column < width),
                limit=None if limit is None else sc.substitute(limit, read),
            ), literals
        case mir.Reduce():
            return _reduce(rel, inner, read)
        case _:
            return msgspec.structs.replace(rel, input=_whole(inner, literals)), ()


def _reader(inner: mir.Relation, literals: Literals) -> list[sc.Scalar]:
    """For each column of a relation with its lifted literals at the end, the expression to read it by: a column or the
    literal.
    """
    return [*(sc.Column(c) for c in range(mir.arity(inner))), *literals]


def _constant(rel: mir.Constant) -> Lifted:
    """Columns with the same value in all rows: those at the end are lifted, others are moved behind the varying ones."""
    if rel.error is not None or not rel.rows:
        return rel, ()
    first = rel.rows[0][0]
    same = [all(_equal(row[c], value) for row, _ in rel.rows) for c, value in enumerate(first)]
    if not any(same):
        return rel, ()
    rest = [c for c, equal in enumerate(same) if not equal]
    width = 1 + max(rest, default=-1)
    literals = tuple(
        sc.Literal(value, column.type)
        for value, column in zip(first[width:], rel.typ.columns[width:], strict=True)
    )
    inner = [c for c in range(width) if same[c]]
    place = {c: n for n, c in enumerate([*rest, *inner])}
    keys = tuple(tuple(place[c] for c in key if c in place and c in rest) for key in rel.typ.keys)
    typ = RelationType(tuple(rel.typ.columns[c] for c in rest), keys)
    rows = tuple((tuple(row[c] for c in rest), diff) for row, diff in rel.rows)
    if not rest:
        # All rows have become one.
        rows = (((), sum(diff for _, diff in rows)),)
    below = mapped(
        mir.Constant(rows, typ), [sc.Literal(first[c], rel.typ.columns[c].type) for c in inner]
    )
    return project(below, [place[c] for c in range(width)]), literals


def _equal(one: Datum, other: Datum) -> bool:
    # In Python 1 equals 1.0 and True.
    return type(one) is type(other) and one == other


def _project(inner: mir.Relation, literals: Literals, outputs: Sequence[int]) -> Lifted:
    """A projection; the literals that it selects last remain last."""
    width = mir.arity(inner)
    end = len(outputs)
    while end and outputs[end - 1] >= width:
        end -= 1
    lifted = tuple(literals[column - width] for column in outputs[end:])
    kept = list(outputs[:end])
    used = sorted({column for column in kept if column >= width})
    below = mapped(inner, [literals[column - width] for column in used])
    place = {column: width + n for n, column in enumerate(used)}
    return project(below, [place.get(column, column) for column in kept]), lifted


def _map(inner: mir.Relation, literals: Literals, scalars: Sequence[sc.Scalar]) -> Lifted:
    read = _reader(inner, literals)
    if isinstance(inner, mir.Map):
        start = mir.arity(inner.input)
        for column, scalar in enumerate(inner.scalars, start):
            if isinstance(scalar, sc.Literal):
                # The two Maps become one, so a literal of the inner one is read as such.
                read[column] = scalar
    done: list[sc.Scalar] = list(literals)
    for scalar in scalars:
        expr = sc.substitute(scalar, read)
        read.append(expr if isinstance(expr, sc.Literal) else sc.Column(len(read)))
        done.append(expr)
    lifted: list[sc.Literal] = []
    while done and isinstance(last := done[-1], sc.Literal):
        lifted.insert(0, last)
        done.pop()
    return _literals_last(inner, done), tuple(lifted)


def _literals_last(inner: mir.Relation, scalars: Sequence[sc.Scalar]) -> mir.Relation:
    """A Map with its literals last, from where they can be lifted; readers of a literal already read it directly."""
    rest = [n for n, scalar in enumerate(scalars) if not isinstance(scalar, sc.Literal)]
    literals = [n for n, scalar in enumerate(scalars) if isinstance(scalar, sc.Literal)]
    if not literals or not rest:
        return mapped(inner, scalars)
    width = mir.arity(inner)
    place = {column: column for column in range(width)}
    place |= {width + n: width + i for i, n in enumerate([*rest, *literals])}
    moved = mir.Map(inner, tuple(sc.permute(scalars[n], place) for n in [*rest, *literals]))
    return project(moved, [place[column] for column in range(width + len(scalars))])


def _reduce(rel: mir.Reduce, inner: mir.Relation, read: Sequence[sc.Scalar]) -> Lifted:
    """Literals are removed from keys (without rows there are no groups, whatever the key). MIN and MAX of a literal are
    known.
    """
    key = [sc.substitute(e, read) for e in rel.group_key]
    aggregates = [
        msgspec.structs.replace(a, expr=sc.substitute(a.expr, read)) for a in rel.aggregates
    ]
    outputs: list[sc.Scalar] = [*key, *map(_known, aggregates)]
    fixed = [e for e in outputs if isinstance(e, sc.Literal)]
    rest = [n for n, e in enumerate(outputs) if not isinstance(e, sc.Literal)]
    new = msgspec.structs.replace(
        rel,
        input=inner,
        group_key=tuple(key[n] for n in rest if n < len(key)),
        aggregates=tuple(aggregates[n - len(key)] for n in rest if n >= len(key)),
    )
    place = {n: i for i, n in enumerate(rest)}
    after = iter(range(len(rest), len(outputs)))
    return _project(
        new, tuple(fixed), [place[n] if n in place else next(after) for n in range(len(outputs))]
    )


def _known(aggregate: sc.AggregateExpr) -> sc.Scalar:
    """MIN or MAX of a single literal value as that literal; otherwise the aggregate."""
    name = functions.aggregate(aggregate.func).name
    if name in _EXTREMES and isinstance(aggregate.expr, sc.Literal):
        return sc.Literal(aggregate.expr.value, aggregate.typ)
    # Any column: only whether it is a literal is looked at.
    return sc.Column(0)


def _join(rel: mir.Join, parts: Sequence[Lifted]) -> Lifted:
    """A join without its inputs' literals; an equality with such a literal becomes a filter."""
    if not any(literals for _, literals in parts):
        return replace_inputs(rel, rel.inputs, [part for part, _ in parts]), ()
    total = sum(mir.arity(part) for part, _ in parts)
    outputs: list[int] = []
    read: list[sc.Scalar] = []
    lifted: list[sc.Literal] = []
    start = 0
    for part, literals in parts:
        width = mir.arity(part)
        outputs.extend(range(start, start + width))
        read.extend(sc.Column(c) for c in range(start, start + width))
        outputs.extend(range(total + len(lifted), total + len(lifted) + len(literals)))
        read.extend(literals)
        lifted.extend(literals)
        start += width
    classes: list[tuple[sc.Scalar, ...]] = []
    checks: list[sc.Scalar] = []
    for cls in rel.equivalences:
        members = tuple(dict.fromkeys(sc.substitute(e, read) for e in cls))
        known = next((m for m in members if isinstance(m, sc.Literal)), None)
        if known is None:
            classes.append(members)
        else:
            checks.extend(_is(m, known) for m in members if m != known)
    joined = mir.Join(tuple(part for part, _ in parts), merge_classes(classes))
    return _project(filtered(joined, checks), tuple(lifted), outputs)


def _is(expr: sc.Scalar, literal: sc.Literal) -> sc.Scalar:
    """The predicate that an expression has a literal's value, NULL included."""
    if literal.value is None:
        return sc.Call("is_null", (expr,), BOOLEAN)
    return sc.Call(f"eq_{literal.typ.kind}", (expr, literal), BOOLEAN)


def _union(parts: Sequence[Lifted]) -> Lifted:
    """The literals that all branches end with."""
    common = 0
    shortest = min(len(literals) for _, literals in parts)
    while common < shortest and len({literals[-1 - common] for _, literals in parts}) == 1:
        common += 1
    lifted = parts[0][1][len(parts[0][1]) - common :]
    inputs = tuple(_whole(rel, literals[: len(literals) - common]) for rel, literals in parts)
    return mir.Union(inputs), lifted
