"""PredicatePushdown: filters move towards the leaves, equalities between join inputs become the join's equivalences.

Promise: a predicate moves only where it means the same and where no row reaches it that it did not see before, except that rows which a
join would have dropped are seen too (as in Materialize). A predicate that is certain to fail stays above. Of SQL's ``a = b`` an equivalence
remains, and an IS NOT NULL on one of its members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeGuard

import msgspec

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import rank
from mzsql.expr.memo import memo
from mzsql.expr.typing import nullable, relation_type
from mzsql.repr.types import BOOLEAN, ColumnType
from mzsql.transform.fusion import conjuncts, merge_classes
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import filtered, kept, replace_inputs, rewrite


def predicate_pushdown(rel: mir.Relation) -> mir.Relation:
    """Push all filters down."""
    return _push(rel, [])


def _push(rel: mir.Relation, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """`rel` with `preds` (over its columns) applied, as far down as they go."""
    # With each answer the relation that it is of, so that nothing else takes its identity.
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
            down, stay = _divide(preds, lambda p: all(c < width for c in sc.support(p)))
            return filtered(msgspec.structs.replace(rel, input=_push(inner, down)), stay)
        case mir.Join():
            return _join(rel, preds)
        case mir.Reduce():
            return _reduce(rel, preds)
        case mir.TopK(input=inner, group_key=group):
            keys = set(group)
            down, stay = _divide(preds, lambda p: bool(sc.support(p)) and sc.support(p) <= keys)
            return filtered(msgspec.structs.replace(rel, input=_push(inner, down)), stay)
        case mir.Negate(input=inner):
            return mir.Negate(_push(inner, preds))
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
    return isinstance(pred, sc.LiteralError)


#: How large a predicate may become by taking in what a Map computes.
INLINED = 1000


def _map(rel: mir.Map, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """Predicates over what the Map computes see through it, unless they would become very large."""
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
        down = [q for p in down for q in _seen_through(p, columns, below)]
    return filtered(mir.Map(_push(inner, down), rel.scalars), stay)


def size_over(expr: sc.Scalar, sizes: Sequence[int]) -> int:
    """The nodes of an expression whose columns stand for expressions of these sizes."""
    return sum(sizes[n.index] if isinstance(n, sc.Column) else 1 for n in sc.walk(expr))


def _reduce(rel: mir.Reduce, preds: Sequence[sc.Scalar]) -> mir.Relation:
    width = len(rel.group_key)
    # Without a key there is a row for no input too: nothing may be filtered below.
    down, stay = _divide(
        preds,
        lambda p: width > 0 and bool(sc.support(p)) and all(c < width for c in sc.support(p)),
    )
    key = list(rel.group_key)
    columns = relation_type(rel.input).columns if down else ()
    inner = _push(rel.input, [q for p in down for q in _seen_through(p, key, columns)])
    return filtered(msgspec.structs.replace(rel, input=inner), stay)


def _seen_through(
    pred: sc.Scalar, exprs: Sequence[sc.Scalar], columns: Sequence[ColumnType]
) -> list[sc.Scalar]:
    """A predicate over what a node computes as predicates over its input: what is computed is not NULL where what it reads is not."""
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
    for pred in conjuncts(tuple(preds)):
        equality = _as_equivalence(pred, owner, columns)
        if equality is not None:
            cls, kept = equality
            classes.append(cls)
            local.extend(kept)
        elif _always_fails(pred):
            stay.append(pred)
        else:
            local.append(pred)
    merged = merge_classes(classes)
    merged, within = _within_inputs(merged, owner, columns)
    local.extend(within)
    per_input: list[list[sc.Scalar]] = [[] for _ in rel.inputs]
    for pred in local:
        homes = _localize(pred, merged, owner)
        if not homes:
            stay.append(pred)
            homes = _implied(pred, owner)
        for home, moved in homes:
            if _is_trivial(moved):
                local.extend(not_null(moved.args[0], columns))
                continue
            start = starts[home]
            shift = {c: c - start for c in sc.support(moved)}
            per_input[home].append(sc.permute(moved, shift))
    inputs = tuple(
        _push(part, list(dict.fromkeys(own)))
        for part, own in zip(rel.inputs, per_input, strict=True)
    )
    return filtered(mir.Join(inputs, merged), stay)


def _is_trivial(pred: sc.Scalar) -> TypeGuard[sc.Call]:
    """Whether a predicate says that an expression equals itself."""
    return (
        isinstance(pred, sc.Call) and pred.func.startswith("eq_") and pred.args[0] == pred.args[1]
    )


def _as_equivalence(
    pred: sc.Scalar, owner: Sequence[int], columns: Sequence[ColumnType]
) -> tuple[tuple[sc.Scalar, ...], list[sc.Scalar]] | None:
    """The class that an equality of two inputs means, and the IS NOT NULL that keeps NULLs out; None where it is no such."""
    match pred:
        case sc.Call(func=func, args=(left, right)) if func.startswith("eq_"):
            left_homes = {owner[c] for c in sc.support(left)}
            right_homes = {owner[c] for c in sc.support(right)}
            if len(left_homes) != 1 or len(right_homes) != 1 or left_homes == right_homes:
                return None
            return (left, right), [
                known for side in (left, right) for known in not_null(side, columns)
            ]
        case sc.Call(func="or", args=(either, other)):
            sides = _null_safe(either, other) or _null_safe(other, either)
            if sides is None:
                return None
            left, right = sides
            left_homes = {owner[c] for c in sc.support(left)}
            right_homes = {owner[c] for c in sc.support(right)}
            if len(left_homes) != 1 or len(right_homes) != 1 or left_homes == right_homes:
                return None
            return (left, right), []
        case _:
            return None


def _null_safe(equal: sc.Scalar, nulls: sc.Scalar) -> tuple[sc.Scalar, sc.Scalar] | None:
    """The sides of ``a = b OR (a IS NULL AND b IS NULL)``."""
    match equal, nulls:
        case sc.Call(func=func, args=(left, right)), sc.Call(func="and") if func.startswith("eq_"):
            said = {_null_part(arg.args[0]) for arg in conjuncts((nulls,)) if _is_null(arg)}
            if all(map(_is_null, conjuncts((nulls,)))) and said == {
                _null_part(left),
                _null_part(right),
            }:
                return left, right
    return None


def _is_null(pred: sc.Scalar) -> TypeGuard[sc.Call]:
    return isinstance(pred, sc.Call) and pred.func == "is_null"


def _null_part(expr: sc.Scalar) -> sc.Scalar:
    """What is NULL exactly where `expr` is: its only argument that is no literal."""
    while isinstance(expr, sc.Call):
        func = functions.scalar(expr.func)
        rest = [arg for arg in expr.args if not isinstance(arg, sc.Literal)]
        given = all(a.value is not None for a in expr.args if isinstance(a, sc.Literal))
        if not func.strict or func.introduces_nulls or len(rest) != 1 or not given:
            break
        expr = rest[0]
    return expr


def not_null(expr: sc.Scalar, columns: Sequence[ColumnType]) -> list[sc.Scalar]:
    """Predicates that keep the rows in which an expression is not NULL, over single columns where that is the same."""
    if not nullable(expr, columns):
        return []
    match expr:
        case sc.Call(func=key, args=args) if args:
            func = functions.scalar(key)
            if func.strict and not func.introduces_nulls:
                return [known for arg in args for known in not_null(arg, columns)]
    return [is_not_null(expr)]


def is_not_null(expr: sc.Scalar) -> sc.Scalar:
    """``expr IS NOT NULL``."""
    return sc.Call("not", (sc.Call("is_null", (expr,), BOOLEAN),), BOOLEAN)


def _within_inputs(
    classes: Sequence[tuple[sc.Scalar, ...]], owner: Sequence[int], columns: Sequence[ColumnType]
) -> tuple[tuple[tuple[sc.Scalar, ...], ...], list[sc.Scalar]]:
    """Take members of one input that are equal to each other apart: that is a filter of this input."""
    kept: list[tuple[sc.Scalar, ...]] = []
    preds: list[sc.Scalar] = []
    for cls in classes:
        first: dict[int, sc.Scalar] = {}
        rest: list[sc.Scalar] = []
        for expr in cls:
            homes = {owner[c] for c in sc.support(expr)}
            if len(homes) != 1:
                rest.append(expr)
                continue
            (home,) = homes
            if home in first:
                preds.append(_null_safe_equal(first[home], expr, columns))
            else:
                first[home] = expr
                rest.append(expr)
        kept.append(tuple(rest))
    return merge_classes(kept), preds


def _null_safe_equal(left: sc.Scalar, right: sc.Scalar, columns: Sequence[ColumnType]) -> sc.Scalar:
    kind = sc.scalar_type(left, columns).kind
    equal = sc.Call(f"eq_{kind}", (left, right), BOOLEAN)
    if not nullable(left, columns) or not nullable(right, columns):
        return equal
    nulls = tuple(sc.Call("is_null", (side,), BOOLEAN) for side in (left, right))
    return sc.Call("or", (equal, sc.Call("and", nulls, BOOLEAN)), BOOLEAN)


def _implied(pred: sc.Scalar, owner: Sequence[int]) -> list[tuple[int, sc.Scalar]]:
    """What ``(a AND b) OR (c AND d)`` says of single inputs, where each alternative says something of them: ``a OR c``."""
    if not (isinstance(pred, sc.Call) and pred.func == "or"):
        return []
    alternatives = [conjuncts((arg,)) for arg in pred.args]
    found: list[tuple[int, sc.Scalar]] = []
    for home in sorted({owner[c] for c in sc.support(pred)}):
        parts: list[sc.Scalar] = []
        for members in alternatives:
            # What can fail may be forgiven where it stands, so it stays there.
            own = [p for p in members if _reads(p, owner) == {home} and not may_error(p)]
            if not own:
                break
            parts.append(own[0] if len(own) == 1 else sc.Call("and", tuple(own), BOOLEAN))
        else:
            distinct = sorted(dict.fromkeys(parts), key=rank)
            found.append(
                (
                    home,
                    distinct[0] if len(distinct) == 1 else sc.Call("or", tuple(distinct), BOOLEAN),
                )
            )
    return found


def _reads(expr: sc.Scalar, owner: Sequence[int]) -> set[int]:
    return {owner[c] for c in sc.support(expr)}


def _localize(
    pred: sc.Scalar, classes: Sequence[tuple[sc.Scalar, ...]], owner: Sequence[int]
) -> list[tuple[int, sc.Scalar]]:
    """The inputs that can evaluate a predicate, each with the predicate over its columns (still numbered as the join's)."""
    reads = sc.support(pred)
    if not reads:
        return []
    found: list[tuple[int, sc.Scalar]] = []
    columns_only = pred == is_not_null(sc.Column(min(reads)))
    class_of = {e.index: cls for cls in classes for e in cls if isinstance(e, sc.Column)}
    for home in sorted(set(owner)):
        columns: dict[int, sc.Scalar] = {}
        for column in reads:
            if owner[column] == home:
                columns[column] = sc.Column(column)
                continue
            # The first is a column, where there is one.
            match = next((e for e in class_of.get(column, ()) if _reads(e, owner) == {home}), None)
            if columns_only and not isinstance(match, sc.Column):
                match = None
            if match is None:
                break
            columns[column] = match
        else:
            found.append((home, _read_through(pred, columns)))
    return found


def _read_through(pred: sc.Scalar, columns: Mapping[int, sc.Scalar]) -> sc.Scalar:
    """A predicate with columns replaced by what equals them."""

    def replace(node: sc.Scalar) -> sc.Scalar:
        return columns[node.index] if isinstance(node, sc.Column) else node

    return sc.transform(pred, replace)


# --- bindings -----------------------------------------------------------------------------------


def _let(rel: mir.Let, preds: Sequence[sc.Scalar]) -> mir.Relation:
    """A filter that stands on every Get of a binding moves into its value."""
    chain: list[tuple[int, mir.Relation]] = []
    body: mir.Relation = rel
    while isinstance(body, mir.Let):
        chain.append((body.id, body.value))
        body = body.body
    body = _push(body, preds)
    done: list[tuple[int, mir.Relation]] = []
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
    """Like `_let`, for the bindings that only what stands behind them reads.

    What an earlier value or the binding's own reads of it is of the iteration before, and is left whole.
    """
    body = _push(rel.body, preds)
    values = [_push(value, []) for value in rel.values]
    for position in range(len(values) - 1, -1, -1):
        local = rel.ids[position]
        if any(_reads_binding(value, local) for value in values[: position + 1]):
            continue
        shared = _shared_filters(local, [body, *values[position + 1 :]])
        if shared:
            gone = frozenset(shared)
            body = _without(body, local, gone)
            values = [_without(value, local, gone) for value in values]
            values[position] = _push(values[position], shared)
    return mir.LetRec(rel.ids, tuple(values), rel.limits, body)


def _reads_binding(rel: mir.Relation, local: int) -> bool:
    return any(isinstance(node, mir.Get) and node.id == local for node in mir.walk(rel))


def _shared_filters(local: int, readers: Sequence[mir.Relation]) -> list[sc.Scalar]:
    """The predicates that stand directly on every Get of `local`."""
    shared: list[sc.Scalar] | None = None
    for reader in readers:
        stack: list[tuple[mir.Relation, tuple[sc.Scalar, ...]]] = [(reader, ())]
        while stack:
            node, above = stack.pop()
            if isinstance(node, mir.Get) and node.id == local:
                shared = list(above) if shared is None else [p for p in shared if p in above]
                if not shared:
                    return []
            own = node.predicates if isinstance(node, mir.Filter) else ()
            stack.extend((kid, own) for kid in mir.inputs(node))
    return [p for p in shared or [] if not _always_fails(p)]


def _without(rel: mir.Relation, local: int, gone: frozenset[sc.Scalar]) -> mir.Relation:
    """Drop predicates from the Filters that stand on Gets of `local`."""

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
