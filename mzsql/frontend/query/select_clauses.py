"""Refusing clauses: sqlglot's parser accepts more clauses, and in more places, than this dialect has."""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.scalar.nodes import position_of
from mzsql.repr.errors import SqlSyntaxError, Unsupported

_SELECT_ARGS = frozenset(
    "with_ expressions distinct from_ joins laterals where group having qualify windows order limit offset kind hint".split()  # noqa: SIM905
)
#: Clauses that only a SELECT has, and the keyword that begins them.
_CLAUSES = {
    "where": "WHERE",
    "group": "GROUP",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
}


def refuse_clauses(node: exp.Expr) -> None:
    """Refuse clauses of a SELECT after anything else: parentheses, VALUES, a set operation.

    Raises:
        SqlSyntaxError: ``Expected end of statement, found WHERE``.
    """
    for key, word in _CLAUSES.items():
        if node.args.get(key):
            raise SqlSyntaxError(
                f"Expected end of statement, found {word}", position=position_of(node)
            )


def refuse_unknown_clauses(node: exp.Select) -> None:
    """Refuse clauses that sqlglot parses and this dialect does not have.

    Raises:
        Unsupported: there is one.
    """
    for key, value in node.args.items():
        if value and key not in _SELECT_ARGS:
            raise Unsupported(
                f"the clause {key.strip('_').upper()} is not supported in SELECT",
                position=position_of(node),
            )
