"""Turns joins with distinct keys into semi joins, in one-shot statements.

Promise: `semi_joined` leaves a statement with the same rows. Decorrelation turns EXISTS, IN and subqueries that
depend on outer rows into joins with distinct keys, which is what an incremental step can maintain. An engine that
runs a query once has a cheaper operator: a semi join, which keeps no groups and needs to know only whether there is
a match. And keys that exclude nothing, being those of all rows of something as large, need not be joined with if the
rows that they select are joined by them again afterwards.

Only joins on plain equality of columns are considered. A row with a NULL never matches in these, nor in a semi join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.render.facts import BOOLEAN, DATE, INTEGERS, decimal
from mzsql.render.rewrites.lean import Relation
from mzsql.render.simplify import Ast
from mzsql.render.simplify.pieces import bare, columns_named, conjuncts
from mzsql.render.statement import ERROR, col, identifier

#: Parts of a SELECT that only lists columns; and, below, of one that joins, and of one that groups.
_LISTS = frozenset(("expressions", "from_"))
_JOINS = _LISTS | {"joins"}
_GROUPS = _LISTS | {"group"}
#: Types besides decimals whose equal values are indistinguishable.
_EXACT = frozenset([*INTEGERS, BOOLEAN, DATE, "TEXT"])


@dataclass(frozen=True)
class _Keys:
    """A relation that holds the distinct values of some columns of another relation.

    Attributes:
        source: the other relation.
        columns: for each column the other relation's column.
    """

    source: str
    columns: Mapping[str, str]


def semi_joined(statement: exp.Expression, relations: Mapping[str, Relation]) -> None:
    """Turn joins with distinct keys into semi joins, or remove them, in place.

    Args:
        statement: a lean statement.
        relations: what is known of the relations that it reads and does not define.
    """
    with_ = statement.args.get("with_")
    if with_ is None:
        return
    made = _Statement(statement, {cte.alias: cte.this for cte in with_.expressions}, relations)
    made.join_keys()
    made.drop_idle()
    read = {table.name for table in statement.find_all(exp.Table)}
    with_.set("expressions", [cte for cte in with_.expressions if cte.alias in read])
    if not with_.expressions:
        statement.set("with_", None)


class _Statement:
    """One statement while it is changed."""

    def __init__(
        self,
        statement: exp.Expression,
        ctes: Mapping[str, exp.Expression],
        relations: Mapping[str, Relation],
    ) -> None:
        self._statement = statement
        self._ctes = ctes
        self._relations = relations
        self._uses = Counter(table.name for table in statement.find_all(exp.Table))
        #: relations made by a semi join: the join, and for each compared column the column of the other side
        self._joined: dict[str, tuple[exp.Join, dict[str, str]]] = {}

    def join_keys(self) -> None:
        """Turn joins with keys that nothing else reads into semi joins."""
        keys = {
            name: found
            for name, query in self._ctes.items()
            if self._uses[name] == 1 and (found := _keys(query)) is not None
        }
        names = {id(query): name for name, query in self._ctes.items()}
        for query in list(self._statement.find_all(exp.Select)):
            joined = self._semi(query, keys)
            name = names.get(id(query))
            if joined is not None and name is not None:
                self._joined[name] = joined

    def _semi(
        self, query: exp.Select, keys: Mapping[str, _Keys]
    ) -> tuple[exp.Join, dict[str, str]] | None:
        """Turn a query's join with keys into a semi join, in place; return the join and which columns it compares."""
        joins, origins = _joins(query), _origins(query)
        if len(joins) != 1 or not _is_inner(joins[0]):
            return None
        if not all(isinstance(one, exp.Table) for one in origins):
            return None
        for mine, other in (origins, origins[::-1]):
            pairs = _covered(query, mine, other, keys.get(mine.name))
            if pairs is None:
                continue
            source, condition = keys[mine.name], joins[0].args["on"]
            there, here = mine.alias_or_name, other.alias_or_name
            shown = [one for one in columns_named(query, besides=condition) if one.table == there]
            if not all(
                self._is_same(other.name, pairs[one.name], source.source, source.columns[one.name])
                for one in shown
            ):
                return None
            for column in shown:
                column.replace(col(pairs[column.name], here))
            for column in list(condition.find_all(exp.Column)):
                if column.table == there:
                    column.replace(col(source.columns[column.name], there))
            table = exp.Table(this=identifier(source.source))
            table.set("alias", exp.TableAlias(this=identifier(there)))
            join = exp.Join(this=table, kind="SEMI", on=condition)
            query.set("from_", exp.From(this=other))
            query.set("joins", [join])
            return join, {name: source.columns[key] for key, name in pairs.items()}
        return None

    def _is_same(self, one: str, column: str, other: str, its_column: str) -> bool:
        """Whether equal values of two relations' columns are interchangeable; 0.0 and -0.0 are equal but not
        interchangeable.
        """
        kind = self._kind(one, column)
        exact = kind is not None and (kind in _EXACT or decimal(kind) is not None)
        return exact and kind == self._kind(other, its_column)

    def _kind(self, name: str, column: str) -> str | None:
        """The type of a relation's column, if it is a column of a relation that the statement reads."""
        query = self._ctes.get(name)
        if query is None:
            known = self._relations.get(name)
            fact = None if known is None else known.columns.get(column)
            return None if fact is None else fact.kind
        if not isinstance(query, exp.Select):
            return None
        item = next((one for one in query.expressions if one.alias_or_name == column), None)
        value = None if item is None else _value(item)
        if not isinstance(value, exp.Column):
            return None
        origins = [one for one in _origins(query) if isinstance(one, exp.Table)]
        from_ = [one for one in origins if value.table in ("", one.alias_or_name)]
        if len(from_) != 1 or len(origins) != len(_origins(query)):
            return None
        return self._kind(from_[0].name, value.name)

    def drop_idle(self) -> None:
        """Remove semi joins that exclude no row that is not excluded later."""
        for name, (join, pairs) in self._joined.items():
            query = self._ctes[name]
            if (
                isinstance(query, exp.Select)
                and self._is_joined_again(name, query, join, pairs)
                and not self._is_filtered(join.this.name)
                and self._rows(join.this.name) >= self._rows(query.args["from_"].this.name)
            ):
                query.set("joins", None)

    def _is_joined_again(
        self, name: str, query: exp.Select, join: exp.Join, pairs: Mapping[str, str]
    ) -> bool:
        """Whether the rows of a semi join are grouped by its keys, and the groups joined with the same rows by these."""
        if set(_parts(query)) != _JOINS or any(
            not isinstance(_value(item), exp.Column) for item in query.expressions
        ):
            return False
        out = {_value(item).name: item.alias_or_name for item in query.expressions}
        group = self._only_reader(name)
        if group is None or not pairs.keys() <= out.keys():
            return False
        label, grouping = group
        if not set(_parts(grouping)) <= _GROUPS | {"having"} or not grouping.args.get("group"):
            return False
        by = {bare(key).name for key in grouping.args["group"].expressions}
        groups = {
            _value(item).name: item.alias_or_name
            for item in grouping.expressions
            if isinstance(_value(item), exp.Column) and _value(item).name in by
        }
        items = [item.alias_or_name for item in (*query.expressions, *grouping.expressions)]
        if ERROR in items or not {out[one] for one in pairs} <= groups.keys():
            return False
        asked = {(groups[out[mine]], other) for mine, other in pairs.items()}
        reader = self._only_reader(label)
        return reader is not None and asked <= _equalities(reader[1], label, join.this.name)

    def _only_reader(self, name: str) -> tuple[str, exp.Select] | None:
        """The relation that reads `name`, and its query, if it is the only one and reads it once."""
        if self._uses[name] != 1:
            return None
        for label, query in (*self._ctes.items(), ("", self._statement)):
            if isinstance(query, exp.Select) and any(
                isinstance(one, exp.Table) and one.name == name for one in _origins(query)
            ):
                return label, query
        return None

    def _is_filtered(self, name: str) -> bool:
        """Whether a relation may lack rows of what it is made from, other than for lack of join partners."""
        query = self._ctes.get(name)
        if query is None:
            return name not in self._relations
        if not isinstance(query, exp.Select) or not set(_parts(query)) <= _JOINS:
            return True
        for join in _joins(query):
            if not _is_inner(join) or any(_pair(one) is None for one in conjuncts(join.args["on"])):
                return True
        return any(
            not isinstance(one, exp.Table) or self._is_filtered(one.name) for one in _origins(query)
        )

    def _rows(self, name: str) -> int:
        """The number of rows of the largest relation that a relation is made from."""
        query = self._ctes.get(name)
        if query is None:
            return self._relations[name].rows if name in self._relations else 0
        return max((self._rows(table.name) for table in query.find_all(exp.Table)), default=1)


def _covered(
    query: exp.Select, mine: exp.Expression, other: exp.Expression, keys: _Keys | None
) -> dict[str, str] | None:
    """For each key column the other relation's column that it is compared with; None if a key column has none."""
    if keys is None or mine.alias_or_name == other.alias_or_name:
        return None
    there, here = mine.alias_or_name, other.alias_or_name
    # An unqualified column could belong to either relation.
    if any(one.table not in (there, here) for one in columns_named(query)):
        return None
    found: dict[str, str] = {}
    for one in conjuncts(query.args["joins"][0].args["on"]):
        pair = _pair(one)
        if pair is None:
            return None
        left, right = pair if pair[0].table == there else pair[::-1]
        if left.table != there or right.table != here:
            return None
        # Then two columns of one side must be equal too, which is more than that the key exists.
        if left.name in found or right.name in found.values():
            return None
        found[left.name] = right.name
    return found if found.keys() == keys.columns.keys() else None


def _equalities(query: exp.Select, label: str, name: str) -> set[tuple[str, str]]:
    """The pairs of columns that are compared in a query that joins exactly these two relations, each once."""
    joins, origins = _joins(query), _origins(query)
    if len(joins) != 1 or not _is_inner(joins[0]):
        return set()
    aliases = {one.name: one.alias_or_name for one in origins if isinstance(one, exp.Table)}
    if aliases.keys() != {label, name}:
        return set()
    found = set()
    for one in conjuncts(joins[0].args["on"]):
        pair = _pair(one)
        if pair is not None:
            left, right = pair if pair[0].table == aliases[label] else pair[::-1]
            if (left.table, right.table) == (aliases[label], aliases[name]):
                found.add((left.name, right.name))
    return found


def _keys(query: exp.Expression) -> _Keys | None:
    """The query as the distinct values of a relation's columns; None if it is something else."""
    if not isinstance(query, exp.Select) or set(_parts(query)) != _GROUPS:
        return None
    (origin,) = _origins(query)
    if not isinstance(origin, exp.Table):
        return None
    values = {item.alias_or_name: _value(item) for item in query.expressions}
    by = [bare(key) for key in query.args["group"].expressions]
    if not all(isinstance(one, exp.Column) for one in (*values.values(), *by)):
        return None
    columns = {name: one.name for name, one in values.items()}
    # Grouped by a column that it does not select, a query could return equal rows.
    if {one.name for one in by} != set(columns.values()) or len(columns) != len(query.expressions):
        return None
    return _Keys(origin.name, columns)


def _parts(query: exp.Select) -> Iterator[str]:
    """The names of the parts that a query has."""
    yield from (name for name, value in query.args.items() if value)


def _joins(query: exp.Select) -> list[exp.Join]:
    return list(query.args.get("joins") or ())


def _origins(query: exp.Select) -> list[exp.Expression]:
    from_ = query.args.get("from_")
    origins = [] if from_ is None else [from_, *_joins(query)]
    return [one.this for one in origins]


def _value(item: exp.Expression) -> Ast:
    return bare(item.this if isinstance(item, exp.Alias) else item)


def _is_inner(join: exp.Join) -> bool:
    plain = not any(join.args.get(part) for part in ("side", "method", "using", "hint"))
    return plain and join.kind in ("", "INNER") and join.args.get("on") is not None


def _pair(condition: Ast) -> tuple[exp.Column, exp.Column] | None:
    """The two columns that a condition compares for equality."""
    one = bare(condition)
    if not isinstance(one, exp.EQ):
        return None
    left, right = bare(one.this), bare(one.expression)
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        return left, right
    return None
