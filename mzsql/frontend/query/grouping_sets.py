"""GROUP BY ROLLUP, CUBE and GROUPING SETS: several groupings of the same rows, appended to each other.

Promise: the sets, and the limits on their number, are PostgreSQL's: the items of GROUP BY are multiplied, those inside
GROUPING SETS added. A grouping has NULL for the keys that it omits; `grouping()` tells which those are. The trade-off:
each set is a `Reduce` of its own over the same rows; the optimizer shares the input, but no set is computed from a
finer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.groupings import GROUPING
from mzsql.frontend.scalar.nodes import position_of
from mzsql.repr import types as t
from mzsql.repr.errors import GroupingError, SqlError

#: At most so many grouping sets, and so many items in one CUBE, as in PostgreSQL.
MAX_SETS = 4096
MAX_CUBE = 12

Nodes = tuple[exp.Expr, ...]


def sets_of(clause: exp.Expr) -> list[Nodes]:
    """The expressions of each grouping set.

    Raises:
        SqlError: ``too many grouping sets present (maximum 4096)``, ``CUBE is limited to 12 elements`` (54011).
    """
    found: list[Nodes] = [()]
    for item in clause.expressions:
        of_item = _expanded(item)
        if len(found) * len(of_item) > MAX_SETS:
            raise _too_many(f"too many grouping sets present (maximum {MAX_SETS})", clause)
        found = [(*before, *more) for before in found for more in of_item]
    return found


def _expanded(item: exp.Expr) -> list[Nodes]:
    match item:
        case exp.GroupingSets():
            return [nodes for inner in item.expressions for nodes in _expanded(inner)]
        case exp.Rollup():
            parts = [_nodes(part) for part in item.expressions]
            return [_flat(parts[:n]) for n in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_nodes(part) for part in item.expressions]
            if len(parts) > MAX_CUBE:
                raise _too_many(f"CUBE is limited to {MAX_CUBE} elements", item)
            sizes = range(len(parts), -1, -1)
            return [_flat(chosen) for n in sizes for chosen in combinations(parts, n)]
        case _:
            return [_nodes(item)]


def _nodes(item: exp.Expr) -> Nodes:
    return tuple(item.expressions) if isinstance(item, exp.Tuple) else (item,)


def _flat(parts: Sequence[Nodes]) -> Nodes:
    return tuple(node for part in parts for node in part)


def _too_many(message: str, node: exp.Expr) -> SqlError:
    return SqlError(message, position=position_of(node), sqlstate="54011")


def reduced(
    relation: hir.Relation,
    columns: Sequence[int],
    keys: Sequence[Typed],
    sets: Sequence[Sequence[int]],
    aggregates: Sequence[hir.Aggregate],
    group_size: int | None,
) -> hir.Relation:
    """The groupings of a relation, appended: the keys, then the aggregates.

    Args:
        relation: the rows, with the keys among their columns.
        columns: the column of each key.
        keys: the keys.
        sets: the keys of each grouping set, by their index in ``keys``.
        aggregates: the aggregates; those called `GROUPING` are computed from the set.
        group_size: the hint about the size of groups.
    """
    computed = tuple(a for a in aggregates if a.func != GROUPING)
    parts: list[hir.Relation] = []
    for chosen in sets:
        own = tuple(dict.fromkeys(chosen))
        part: hir.Relation = hir.Reduce(
            relation, tuple(columns[k] for k in own), computed, group_size
        )
        width = len(own) + len(computed)
        added: list[hir.Scalar] = []
        places: list[int] = []
        for k, key in enumerate(keys):
            if k in own:
                places.append(own.index(k))
            else:
                places.append(width + len(added))
                added.append(Literal(None, key.typ))
        at = iter(range(len(own), width))
        for aggregate in aggregates:
            if aggregate.func == GROUPING:
                places.append(width + len(added))
                added.append(Literal(_left_out(aggregate, keys, own), t.INTEGER))
            else:
                places.append(next(at))
        if added:
            part = hir.Map(part, tuple(added))
        parts.append(hir.Project(part, tuple(places)))
    return parts[0] if len(parts) == 1 else hir.Union(tuple(parts))


def _left_out(aggregate: hir.Aggregate, keys: Sequence[Typed], own: Sequence[int]) -> int:
    """The value of `grouping(…)`: one bit for each argument, set where the grouping set omits that key."""
    bits = 0
    for argument in grouping_arguments(aggregate):
        key = next(k for k, known in enumerate(keys) if known.expr == argument)
        bits = bits << 1 | (key not in own)
    return bits


def grouping_arguments(aggregate: hir.Aggregate) -> tuple[hir.Scalar, ...]:
    """The arguments of a call of `grouping`."""
    assert isinstance(aggregate.expr, hir.Call)
    return aggregate.expr.args


def check_arguments(aggregates: Sequence[hir.Aggregate], keys: Sequence[Typed]) -> bool:
    """Whether there are calls of `grouping`, whose arguments must be keys.

    Raises:
        GroupingError: ``arguments to GROUPING must be grouping expressions of the associated query level``.
    """
    known = {key.expr for key in keys}
    calls = [aggregate for aggregate in aggregates if aggregate.func == GROUPING]
    for aggregate in calls:
        if not known.issuperset(grouping_arguments(aggregate)):
            raise GroupingError(
                "arguments to GROUPING must be grouping expressions of the associated query level"
            )
    return bool(calls)
