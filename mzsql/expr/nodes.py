"""What a statement's tree holds, found by one walk.

Promise: `nodes` and `relations_in` find what sqlglot's own `find_all` does, each node once, in no particular order, in about a third of the
time: a step's statement has tens of thousands of nodes, and they are looked through several times before it is run for the first time.

Trade-off: the walk reads the nodes' arguments as they are kept (`Expression.args`), which is sqlglot's documented form of a tree.
"""

from __future__ import annotations

from typing import TypeVar

from sqlglot import expressions as exp

N = TypeVar("N", bound=exp.Expr)

#: Most nodes of a statement. None has a relation, a call or another such node in it, but for a type's parameters and a column's names.
_LEAVES = frozenset((exp.Identifier, exp.Literal, exp.DataType, exp.Column, exp.Null, exp.Boolean))


def nodes(tree: exp.Expression, *kinds: type[N]) -> list[N]:
    """The nodes of some classes or their subclasses, the root included.

    Args:
        tree: what is looked through; it is not changed.
        kinds: the classes. What is inside of columns and types is found where these are asked for with it: it is named by
            `exp.Identifier`, `exp.Literal`, `exp.DataType` or `exp.DataTypeParam`.
    """
    within = _LEAVES.isdisjoint(kinds) and exp.DataTypeParam not in kinds
    found: list[N] = []
    waiting: list[exp.Expr] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, kinds):
            found.append(node)
        for value in node.args.values():
            if type(value) is list:
                waiting += [
                    one
                    for one in value
                    if isinstance(one, exp.Expression) and not (within and type(one) in _LEAVES)
                ]
            elif isinstance(value, exp.Expression) and not (within and type(value) in _LEAVES):
                waiting.append(value)
    return found


def relations_in(query: exp.Expression) -> frozenset[str]:
    """Names of the relations that a query reads itself. A hint names an alias, which is none."""
    return frozenset(
        one.name for one in nodes(query, exp.Table) if not isinstance(one.parent, exp.JoinHint)
    )


def is_tree(root: exp.Expression) -> bool:
    """Whether the root stands in nothing, and each other node in one place, which it knows."""
    if root.parent is not None:
        return False
    waiting: list[exp.Expr] = [root]
    while waiting:
        node = waiting.pop()
        for value in node.args.values():
            if type(value) is list:
                for one in value:
                    if isinstance(one, exp.Expression):
                        if one.parent is not node:
                            return False
                        waiting.append(one)
            elif isinstance(value, exp.Expression):
                if value.parent is not node:
                    return False
                waiting.append(value)
    return True
