"""PredicatePushdown: moves filters towards the leaves, and turns equalities between join inputs into the join's
equivalences.

Promise: a predicate moves only where it means the same and sees no row that it did not see before, except rows that
a join would have dropped (as in Materialize). A predicate that certainly fails stays above. SQL's ``a = b`` becomes
an equivalence, and an IS NOT NULL on one of its members.
Source: Materialize's transform `PredicatePushdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import in_rank, rank
from mzsql.expr.memo import memo
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.parts import part_of, parts
from mzsql.expr.scalar import INLINED, size_over
from mzsql.expr.typing import nullable, relation_type
from mzsql.repr.types import ColumnType
from mzsql.transform.fusion import conjuncts, merge_classes
from mzsql.transform.join_predicates import (
    as_equivalence,
    implied,
    in_terms_of_firsts,
    inputs_read,
    is_not_null,
    is_trivial,
    localize,
    never_null,
    not_null,
    said_not_null,
    within_inputs,
)
from mzsql.transform.known_values import equal_columns
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import filtered, kept, replace_inputs, rewrite


def predicate_pushdown(rel: mir.Relation) -> mir.Relation:
    """Push all filters down."""
    return _push(rel, [])


def _push(rel: mir.Relation, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """Apply `preds` (over `rel`'s columns) to `rel`, as far down as possible."""
    # The entry keeps the relation whose id is in the key alive, so that no other object gets the same id.
    known: dict[tuple[object, ...], tuple[mir.Relation, mir.Relation]] = memo("predicate_pushdown")
    key = (id(rel), *preds)
    found = known.get(key)
    if found is None:
        found = known[key] = rel, kept(rel, _pushed(rel, preds))
    return found[1]


def _pushed(rel: mir.Relation, preds: Sequence[sc.Scalar]) -> mir.Relation:
    match rel:
        case mir.Filter(input=inner, predicates=own):
            return _push(inner, list(dict.fromkeys([*conjuncts(own), *preds])))
        case mir.Project(input=inner, outputs=outputs):
            place = dict(enumerate(outputs))
            return mir.Project(_push(inner, [sc.permute(p, place) for p in preds]), outputs)
        case mir.Map():
            return _map(rel, preds)
        case mir.FlatMap(input=inner):
            width = mir.arity(inner)
            # A Reduce without a group key has a row even for an empty input, so no filter may move below it.
            down, stay = _divide(preds, lambda p: all(c < width for c in sc.support(p)))
            return filtered(msgspec.structs.replace(rel, input=_push(inner, down)), stay)
        case mir.Join():
            return _join(rel, preds)
        case mir.Reduce():
            return _reduce(rel, preds)
        case mir.TopK(input=inner, group_key=group):
            # What reads the group key only keeps or drops whole groups; any other predicate would change which rows of a group come
            # first.
            keys = set(group)
            down, stay = _divide(preds, lambda p: bool(sc.support(p)) and sc.support(p) <= keys)
            return filtered(msgspec.structs.replace(rel, input=_push(inner, down)), stay)
        case mir.Negate(input=inner):
            return mir.Negate(_push(inner, preds))
        # A predicate looks at a row alone, so equal rows go the same way, and what is counted of them is the same below it.
        case mir.Threshold(input=inner):
            return mir.Threshold(_push(inner, preds))
        case mir.Union(inputs=inputs):
            return mir.Union(tuple(_push(part, preds) for part in inputs))
        case mir.ArrangeBy():
            return filtered(msgspec.structs.replace(rel, input=_push(rel.input, [])), preds)
        case mir.LetRec():
            return _let_rec(rel, preds)
        case mir.Let():
            return _let(rel, preds)
        case _:
            kids = mir.inputs(rel)
            return filtered(replace_inputs(rel, kids, [_push(kid, []) for kid in kids]), preds)


def _divide(
    preds: Iterable[sc.Scalar], moves: Callable[[sc.Scalar], bool]
) -> tuple[list[sc.Scalar], list[sc.Scalar]]:
    down: list[sc.Scalar] = []
    stay: list[sc.Scalar] = []
    for pred in preds:
        (down if moves(pred) and not _always_fails(pred) else stay).append(pred)
    return down, stay


def _always_fails(pred: sc.Scalar) -> bool:
    # Such a predicate stays where it is: further down it would fail for rows that never come up to it.
    return isinstance(pred, sc.LiteralError)


def _map(rel: mir.Map, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """Rewrite predicates over a Map to be over its input, unless they would become very large."""
    width = mir.arity(rel.input)
    sizes = [1] * width
    for scalar in rel.scalars:
        sizes.append(size_over(scalar, sizes))
    down, stay = _divide(preds, lambda p: size_over(p, sizes) <= INLINED)
    inner = rel.input
    if down:
        columns: list[sc.Scalar] = [sc.Column(i) for i in range(width)]
        wanted = {c for pred in down for c in sc.support(pred)}
        for offset in range(len(rel.scalars) - 1, -1, -1):
            if width + offset in wanted:
                wanted |= sc.support(rel.scalars[offset])
        for offset, scalar in enumerate(rel.scalars):
            read = width + offset in wanted
            columns.append(sc.substitute(scalar, columns) if read else sc.Column(width + offset))
        below = relation_type(inner).columns
        down = list(dict.fromkeys(q for p in down for q in _seen_through(p, columns, below)))
    return filtered(mir.Map(_push(inner, down), rel.scalars), stay)


def filters_over_input(mfp: MapFilterProject) -> list[sc.Scalar]:
    """The predicates of an MFP over its input's columns, except those that this makes very large."""
    columns = sc.inlined(mfp.expressions, mfp.input_arity)
    found = [sc.transform(sc.substitute(p, columns), _in_rank) for _, p in mfp.predicates]
    return [p for p in found if sc.is_small(p, mfp.input_arity)]


def _in_rank(expr: sc.Scalar) -> sc.Scalar:
    """What stood for a column may come after what the column came before."""
    return in_rank(expr) if isinstance(expr, sc.Call) else expr


def _reduce(rel: mir.Reduce, preds: Sequence[sc.Scalar]) -> mir.Relation:
    width = len(rel.group_key)
    sizes = [sum(1 for _ in sc.walk(e)) for e in rel.group_key]
    # Without a key there is a row for no input too: nothing may be filtered below.
    down, stay = _divide(
        preds,
        lambda p: (
            bool(reads := sc.support(p))
            and all(c < width for c in reads)
            and size_over(p, sizes) <= INLINED
        ),
    )
    key = list(rel.group_key)
    columns = relation_type(rel.input).columns if down else ()
    below = dict.fromkeys(q for p in down for q in _seen_through(p, key, columns))
    inner = _push(rel.input, list(below))
    return filtered(msgspec.structs.replace(rel, input=inner), stay)


def _seen_through(
    pred: sc.Scalar, exprs: Sequence[sc.Scalar], columns: Sequence[ColumnType]
) -> list[sc.Scalar]:
    """Rewrite a predicate over a node's computed columns to be over its input. What is computed is not NULL where what
    it reads is not.
    """
    match pred:
        case sc.Call(func="not", args=(sc.Call(func="is_null", args=(sc.Column(index=index),)),)):
            return not_null(exprs[index], columns)
        case _:
            return [sc.substitute(pred, exprs)]


# --- joins --------------------------------------------------------------------------------------


def _join(rel: mir.Join, preds: Sequence[sc.Scalar]) -> mir.Relation:
    if not isinstance(rel.implementation, mir.Unplanned):
        inputs = tuple(_push(part, []) for part in rel.inputs)
        return filtered(msgspec.structs.replace(rel, inputs=inputs), preds)
    starts: list[int] = []
    total = 0
    for part in rel.inputs:
        starts.append(total)
        total += mir.arity(part)
    owner = [i for i, part in enumerate(rel.inputs) for _ in range(mir.arity(part))]
    columns = [column for part in rel.inputs for column in relation_type(part).columns]
    classes = list(rel.equivalences)
    stay: list[sc.Scalar] = []
    local: list[sc.Scalar] = []
    across: list[sc.Scalar] = []
    for pred in conjuncts(tuple(preds)):
        equality = as_equivalence(pred, owner, columns)
        if equality is not None:
            cls, kept = equality
            classes.append(cls)
            if any(len(inputs_read(side, owner)) > 1 for side in cls):
                across.append(min(cls, key=rank))
                # A side that reads a single input fails for each row for which it can fail, whether or not the join
                # evaluates it for a lookup.
                own = (side for side in cls if len(inputs_read(side, owner)) == 1)
                local.extend(is_not_null(side) for side in own if may_error(side))
            else:
                local.extend(kept)
        elif _always_fails(pred):
            stay.append(pred)
        else:
            local.append(pred)
    pairs = _within(local, owner, columns)
    merged = merge_classes(_by_firsts(classes, pairs))
    if across:
        merged = in_terms_of_firsts(merged, owner)
    for expr in across:
        # If something equal to it is never NULL, it is not NULL either.
        cls = next((cls for cls in merged if expr in cls), ())
        if all(nullable(member, columns) for member in cls):
            others = [member for member in cls if member != expr]
            hides = any(may_error(m) and len(inputs_read(m, owner)) > 1 for m in others)
            # If another member can fail, filtering by the expression's columns would drop rows for which that member
            # fails.
            local.extend([is_not_null(expr)] if hides else never_null(expr))
    # A predicate on one member holds for all members, even those that no lookup compares.
    equal = merge_classes([*merged, *pairs])
    merged, within = within_inputs(merged, owner, columns)
    per_input: list[list[sc.Scalar]] = [[] for _ in rel.inputs]
    for pred in within:
        (home,) = inputs_read(pred, owner)
        per_input[home].append(sc.permute(pred, {c: c - starts[home] for c in sc.support(pred)}))
    for pred in local:
        homes = localize(pred, equal, owner)
        if not homes:
            stay.append(pred)
            homes = implied(pred, owner)
        for home, moved in homes:
            if is_trivial(moved):
                local.extend(not_null(moved.args[0], columns))
                continue
            subject = said_not_null(moved)
            if isinstance(subject, sc.Column) and not columns[subject.index].nullable:
                continue
            if subject is not None and not isinstance(subject, sc.Column) and moved != pred:
                # For an expression, require that the columns it reads are not NULL.
                local.extend(known for known in not_null(subject, columns) if known not in local)
                continue
            start = starts[home]
            shift = {c: c - start for c in sc.support(moved)}
            per_input[home].append(sc.permute(moved, shift))
    inputs = tuple(
        _push(part, list(dict.fromkeys(own)))
        for part, own in zip(rel.inputs, per_input, strict=True)
    )
    return filtered(mir.Join(inputs, merged), stay)


def _within(
    preds: Sequence[sc.Scalar], owner: Sequence[int], columns: Sequence[ColumnType]
) -> list[tuple[sc.Scalar, ...]]:
    """The columns of one input that predicates, which become filters of it, equate."""
    pairs = (pair for pred in preds for pair in equal_columns(pred, columns))
    return [(sc.column(a), sc.column(b)) for a, b in pairs if owner[a] == owner[b]]


def _by_firsts(
    classes: Sequence[tuple[sc.Scalar, ...]], pairs: Sequence[tuple[sc.Scalar, ...]]
) -> list[tuple[sc.Scalar, ...]]:
    """Classes whose members are the first ones of those that are equal anyway."""
    firsts = {e: cls[0] for cls in merge_classes(tuple(pairs)) for e in cls[1:]}
    return [tuple(firsts.get(e, e) for e in cls) for cls in classes] if firsts else list(classes)


# --- bindings -----------------------------------------------------------------------------------


def _let(rel: mir.Let, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """A filter that is on every Get of a binding moves into its value."""
    chain: list[tuple[int, mir.Relation]] = []
    body: mir.Relation = rel
    while isinstance(body, mir.Let):
        chain.append((body.id, body.value))
        body = body.body
    body = _push(body, preds)
    done: list[tuple[int, mir.Relation]] = []
    # The last binding first: what moves into its value may then be on every Get of an earlier one.
    for position in range(len(chain) - 1, -1, -1):
        local, value = chain[position]
        readers = [body, *(v for _, v in done)]
        shared = _shared_filters(local, readers)
        pushed = _push(value, shared)
        if shared:
            gone = frozenset(shared)
            body = _without(body, local, gone)
            done = [(i, _without(v, local, gone)) for i, v in done]
        done.append((local, pushed))
    for local, value in done:
        body = mir.Let(local, value, body)
    return body


def _let_rec(rel: mir.LetRec, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """As `_let`, for the bindings that only the body reads.

    What the binding's own or an earlier value reads of it is from the iteration before, and must stay whole.
    """
    body = _push(rel.body, preds)
    values = [_push(value, []) for value in rel.values]
    for position in range(len(values) - 1, -1, -1):
        local = rel.ids[position]
        if any(mir.reads_local(value, local) for value in values[: position + 1]):
            continue
        shared = _shared_filters(local, [body, *values[position + 1 :]])
        if shared:
            gone = frozenset(shared)
            body = _without(body, local, gone)
            values = [_without(value, local, gone) for value in values]
            values[position] = _push(values[position], shared)
    return mir.LetRec(rel.ids, tuple(values), rel.limits, body)


def _shared_filters(local: int, readers: Sequence[mir.Relation]) -> list[sc.Scalar]:
    """The predicates that are directly on every Get of `local`."""
    shared: list[sc.Scalar] | None = None
    known = parts()
    for reader in readers:
        stack: list[tuple[mir.Relation, tuple[sc.Scalar, ...]]] = [(reader, ())]
        while stack:
            node, above = stack.pop()
            if local not in part_of(node, known).reads:
                continue
            if isinstance(node, mir.Get):
                shared = list(above) if shared is None else [p for p in shared if p in above]
                if not shared:
                    return []
            own = node.predicates if isinstance(node, mir.Filter) else ()
            stack.extend((kid, own) for kid in mir.inputs(node))
    return [p for p in shared or [] if not _always_fails(p)]


def _without(rel: mir.Relation, local: int, gone: frozenset[sc.Scalar]) -> mir.Relation:
    """Drop predicates from the Filters on Gets of `local`."""

    def drop(node: mir.Relation) -> mir.Relation:
        if (
            isinstance(node, mir.Filter)
            and isinstance(node.input, mir.Get)
            and node.input.id == local
        ):
            rest = tuple(p for p in node.predicates if p not in gone)
            return filtered(node.input, rest)
        return node

    return rewrite(rel, drop)
