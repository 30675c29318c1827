"""Removes relations of a statement that only rename columns.

Promise: `rename` leaves a statement with the same rows. A plan node that does nothing in a step is still a relation
of its statement; if it is only a list of columns of one relation, its readers read that relation instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.expr.nodes import nodes
from mzsql.render.simplify.pieces import columns_named

_PLAIN = frozenset(("expressions", "from_", "kind", "hint"))


@dataclass(frozen=True)
class _Renamed:
    """The renamed relation, and for each column the original one."""

    source: str
    columns: Mapping[str, str]


def rename(statement: exp.Expression) -> None:
    """Read renamed relations directly, in place. The statement must not contain ``*``."""
    with_ = statement.args.get("with_")
    if with_ is None:
        return
    known: dict[str, _Renamed] = {}
    kept: list[exp.CTE] = []
    for cte in with_.expressions:
        for query in _selects(cte.this):
            _read_sources(query, known)
        renamed = _renamed(cte.this)
        if renamed is None:
            kept.append(cte)
        else:
            known[cte.alias] = renamed
    statement.set("with_", None)
    for query in _selects(statement):
        _read_sources(query, known)
    read = {table.name for part in (statement, *kept) for table in nodes(part, exp.Table)}
    stay = {id(cte) for cte in kept}
    # Relations that are read under a name that cannot be resolved stay, too.
    left = [cte for cte in with_.expressions if id(cte) in stay or cte.alias in read]
    if left:
        statement.set("with_", exp.With(expressions=left))


def _selects(query: exp.Expression) -> Iterator[exp.Select]:
    yield from list(query.find_all(exp.Select))


def _renamed(query: exp.Expression) -> _Renamed | None:
    """The query as a renaming; None if it is more."""
    if not isinstance(query, exp.Select):
        return None
    if any(value for key, value in query.args.items() if key not in _PLAIN):
        return None
    from_ = query.args.get("from_")
    if from_ is None or not isinstance(from_.this, exp.Table):
        return None
    columns: dict[str, str] = {}
    for item in query.expressions:
        column = item.this if isinstance(item, exp.Alias) else item
        if not isinstance(column, exp.Column):
            return None
        columns[item.alias_or_name] = column.name
    return _Renamed(from_.this.name, columns)


def _read_sources(query: exp.Select, known: Mapping[str, _Renamed]) -> None:
    """Let one query read what its relations are renamed from."""
    from_ = query.args.get("from_")
    if from_ is None:
        return
    origins = [from_, *(query.args.get("joins") or ())]
    alone = len(origins) == 1
    if not alone and any(not column.table for column in columns_named(query)):
        return
    changed: dict[str, _Renamed] = {}
    for origin in origins:
        source = origin.this
        if isinstance(source, exp.Table) and source.name in known:
            renamed = known[source.name]
            alias = source.alias or source.name
            changed[alias] = renamed
            table = exp.Table(this=exp.to_identifier(renamed.source, quoted=True))
            if source.alias:
                table.set("alias", source.args["alias"])
            elif not alone:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
            origin.set("this", table)
    if changed:
        _rename_columns(query, changed, alone=alone)


def _rename_columns(query: exp.Select, changed: Mapping[str, _Renamed], *, alone: bool) -> None:
    (only,) = changed.values() if alone else (None,)
    for column in columns_named(query):
        renamed = changed.get(column.table) if column.table else only
        if renamed is None or not column.this.args.get("quoted"):
            continue
        name = renamed.columns.get(column.name)
        if name is None or name == column.name:
            continue
        if column.parent is query and column.arg_key == "expressions":
            column.replace(
                exp.Alias(
                    this=_named(column, name),
                    alias=exp.to_identifier(column.name, quoted=True),
                )
            )
        else:
            column.set("this", exp.to_identifier(name, quoted=True))


def _named(column: exp.Column, name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=column.args.get("table"))
