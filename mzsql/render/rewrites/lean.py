"""Simplifies a step's statement by what is known of its relations' values.

Promise: `lean` returns a statement with the same rows, of the same types, as long as each relation is as its
`Relation` says. A rendered statement is valid for all values: each operation that could overflow is guarded, sums
are kept in two parts, and each row carries an error column. Most of a small step's cost is that DuckDB parses and
plans all this. But the values of most steps are small, which is quickly measured; then the guards are unnecessary,
the error columns are all NULL, and what only served them can go. What may go is found by interval arithmetic
(`mzsql.render.simplify`), from the relations upwards, and then by which columns are read, downwards.

The runner checks beforehand that the facts hold: if they do not, a lean statement may throw or return wrong rows.
docs/architecture.md, "The way of an update through a dataflow", step 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.nodes import nodes
from mzsql.render.facts import INTEGERS, Fact, bounded, column_of, decimal, more_rows, one_of
from mzsql.render.facts import widened as wider
from mzsql.render.rewrites.idle import of_nothing, without
from mzsql.render.rewrites.relevant import SATISFIED
from mzsql.render.rewrites.renames import rename
from mzsql.render.simplify import SETTLED, Ast, Simplifier
from mzsql.render.simplify.pieces import bare, closed, conjuncts, kind_of

#: Upper bound on numbers of rows. No query reads more, since that would take weeks; it limits what joins are assumed to
#: multiply to.
_MANY = 10**15


class _Beyond(Exception):
    """A statement contains something that is not analysed; it is left as it is."""


@dataclass(frozen=True)
class Relation:
    """What is known of a relation.

    Attributes:
        columns: facts by column name, in order.
        rows: upper bound on the number of rows.
        same: columns that are equal in each row to another, earlier one.
        totals: upper bounds on the sums of columns' absolute values over all rows, where they are lower than the
            columns' bounds imply.
    """

    columns: Mapping[str, Fact]
    rows: int
    same: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, Fraction] = field(default_factory=dict)
    #: by column what it was found to cover last: what steps measure are mostly the same few objects
    _covered: dict[str, Fact] = field(default_factory=dict, init=False, compare=False, repr=False)

    def total(self, name: str) -> Fraction | None:
        """Upper bound on the sum of a column's absolute values over all rows; None if unknown."""
        known = self.totals.get(name)
        if known is not None:
            return known
        fact = self.columns[name]
        size = fact.size if fact.values else Fraction(0)
        return None if size is None else size * self.rows

    def _covers(self, name: str, fact: Fact) -> bool:
        found = self.columns[name].covers(fact)
        if found:
            self._covered[name] = fact
        return found

    def covers(self, other: Relation) -> bool:
        """Whether what is known here holds for every relation that `other` describes."""
        pairs = zip(self.columns, other.columns.values(), strict=True)
        covered = self._covered
        return (
            self.rows >= other.rows
            and all(covered.get(name) is fact or self._covers(name, fact) for name, fact in pairs)
            and all(_at_most(other.total(name), total) for name, total in self.totals.items())
            # Equal to a common third column is equal too, whichever of them is the first.
            and all(
                other.same.get(name, name) == other.same.get(earlier, earlier)
                for name, earlier in self.same.items()
            )
        )

    def with_(self, other: Relation) -> Relation:
        """Bounds that hold for rows of either relation."""
        pairs = ((name, a, other.columns[name]) for name, a in self.columns.items())
        # Facts on like values are mostly one object (`mzsql.render.facts.coarse`).
        columns = {name: a if a is b else one_of([a, b]) for name, a, b in pairs}
        return Relation(columns, max(self.rows, other.rows), _both(self.same, other.same))


def widened(seen: Relation, before: Relation | None = None) -> Relation:
    """Looser bounds than `seen`, so that a statement that is made for them serves later steps too.

    Args:
        seen: holds for what was seen.
        before: what the statement that did not serve was made for. Facts that were outgrown grow, with either sign;
            the rest stay.
    """
    if before is None:
        columns = {name: wider(fact) for name, fact in seen.columns.items()}
        rows = more_rows(seen.rows)
        return Relation(columns, rows, seen.same, _totals(seen, None, columns, rows))
    columns = {
        name: fact if fact.covers(found) else wider(one_of([fact, found]), signed=True)
        for name, found in seen.columns.items()
        for fact in [before.columns[name]]
    }
    rows = before.rows if before.rows >= seen.rows else more_rows(seen.rows)
    return Relation(
        columns, rows, _both(before.same, seen.same), _totals(seen, before, columns, rows)
    )


#: Sums that cannot be larger are computed in narrow types anyway, and a mean of them by one division.
_LARGE = 10**15


def _totals(
    seen: Relation, before: Relation | None, columns: Mapping[str, Fact], rows: int
) -> dict[str, Fraction]:
    """Bounds on large sums of widened columns over `rows` rows: there may be more rows than were seen, and larger values, but
    hardly both.
    """
    found: dict[str, Fraction] = {}
    for name, fact in seen.columns.items():
        size, wide = fact.size if fact.values else None, columns[name].size
        if size is None or wide is None or wide * rows <= _LARGE:
            continue
        earlier = Fraction(0) if before is None else before.total(name)
        if earlier is not None:
            found[name] = max(size * rows, earlier)
    return found


def _at_most(total: Fraction | None, bound: Fraction) -> bool:
    return total is not None and total <= bound


#: Turns a lean statement, and what is known of its rows (None: nothing), into the statement that is wanted.
Finish = Callable[[exp.Expression, Relation | None], exp.Expression]


def _as_it_is(statement: exp.Expression, _: Relation | None) -> exp.Expression:
    return statement


def lean(
    statement: exp.Expression, relations: Mapping[str, Relation], finish: Finish = _as_it_is
) -> exp.Expression | None:
    """The statement simplified by what is known of its relations; None if it has no rows then.

    Args:
        statement: as rendered for DuckDB; it is not modified.
        relations: every relation that it reads and does not define; those with 0 rows are empty.
        finish: applied at the end; what it does not read is not computed.
    """
    empty = {name for name, one in relations.items() if one.rows == 0}
    body = without(statement, empty)
    if body is None:
        return None
    try:
        known = _Reader(relations).statement(body)
        left = without(body, frozenset())
        if left is not None:
            _drop_satisfied(left)
            left = finish(left, known)
            _prune(left)
            rename(left)
    except _Beyond:
        whole = without(statement, empty)
        return None if whole is None else finish(whole, None)
    return left


def _drop_satisfied(statement: exp.Expression) -> None:
    """Remove the filters that every row passes, now that what they say of the rows is known."""
    for where in nodes(statement, exp.Where):
        if where.meta.get(SATISFIED) and where.parent is not None:
            where.parent.set("where", None)


class _Reader:
    """Simplifies a statement from its relations upwards, in place."""

    def __init__(self, relations: Mapping[str, Relation]) -> None:
        self._relations = dict(relations)
        #: for a query that another one reads: facts on its columns, without its own conditions
        self._columns: dict[int, Simplifier] = {}

    def statement(self, body: exp.Expression) -> Relation:
        with_ = body.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            self._relations[cte.alias] = self._query(cte.this)
        return self._query(body)

    def _query(self, query: exp.Expression) -> Relation:
        if isinstance(query, exp.Union):
            return _united(self._query(query.this), self._query(query.expression))
        if isinstance(query, exp.Subquery | exp.Paren):
            return self._query(query.this)
        if not isinstance(query, exp.Select):
            raise _Beyond
        return self._select(query)

    def _select(self, query: exp.Select) -> Relation:
        columns: dict[tuple[str | None, str], Fact] = {}
        same: dict[tuple[str | None, str], str] = {}
        totals: dict[tuple[str | None, str], Fraction] = {}
        rows = 1
        from_ = query.args.get("from_")
        joins = query.args.get("joins") or ()
        outer = any(one.side for one in joins)
        nothing = False
        for origin in [] if from_ is None else [from_, *joins]:
            alias, relation = self._origin(origin.this)
            nothing = nothing or (relation.rows == 0 and not outer)
            rows = min(_MANY, rows * max(relation.rows, 1))
            for name, fact in relation.columns.items():
                known = bounded(_nullable(fact) if outer else fact)
                columns[alias, name] = known
                if not joins:
                    columns[None, name] = known
            for name, other in relation.same.items():
                same[alias, name] = other
                if not joins:
                    same[None, name] = other
            for name in () if joins else relation.columns:
                total = relation.total(name)
                if total is not None:
                    totals[alias, name] = totals[None, name] = total
        # An outer join also returns rows without a partner.
        if outer:
            rows = min(_MANY, rows * 2)
        group = query.args.get("group")
        grouped = group is not None
        simplifier = Simplifier(columns, rows=rows, grouped=grouped, same=same, totals=totals)
        for one in joins:
            condition = one.args.get("on")
            if condition is not None:
                one.set("on", simplifier.condition(condition)[0])
        if not joins and group is None:
            plain = Simplifier(columns, rows=rows, grouped=False, same=same)
            self._columns[id(query)] = plain
        nothing = (self._where(query, simplifier) or nothing) and not of_nothing(query)
        self._sink(query)
        if group is not None:
            _regroup(group, simplifier)
            _having(query, simplifier)
        found = self._projected(query, simplifier, rows)
        return replace(found, rows=0) if nothing else found

    def _origin(self, source: exp.Expression) -> tuple[str | None, Relation]:
        if isinstance(source, exp.Subquery):
            return source.alias or None, self._query(source.this)
        known = self._relations.get(source.name) if isinstance(source, exp.Table) else None
        if known is None:
            raise _Beyond
        return source.alias or source.name, known

    @staticmethod
    def _where(query: exp.Select, simplifier: Simplifier) -> bool:
        """Simplify a query's WHERE; return whether no row passes it."""
        where = query.args.get("where")
        if where is None:
            return False
        condition, fact = simplifier.condition(where.this)
        # A condition that may fail stays even if its result is known, because its error must be raised.
        if fact.always and not fact.fails:
            query.set("where", None)
        elif fact.never and not fact.fails:
            where.set("this", s.boolean(False))
        else:
            where.set("this", condition)
            simplifier.refine(condition)
        return fact.never and not fact.fails

    def _sink(self, query: exp.Select) -> None:
        """Move conditions on an item down to the subquery that computes it, in place. A status column that only decides
        which rows stay is then not computed at all, and the conditions can use the files' statistics.
        """
        where, from_ = query.args.get("where"), query.args.get("from_")
        inner = None if from_ is None else from_.this.this
        if where is None or not isinstance(inner, exp.Select) or query.args.get("joins"):
            return
        simplifier = self._columns.get(id(inner))
        if simplifier is None or not _is_row_wise(inner):
            return
        items = {item.alias_or_name: item for item in inner.expressions}
        before = inner.args.get("where")
        passes = [one is None or bool(one.meta.get(SATISFIED)) for one in (where, before)]
        kept: list[Ast] = []
        for one in reversed(conjuncts(where.this)):
            column = bare(one.this) if isinstance(one, exp.Is) else None
            item = items.get(column.name) if isinstance(column, exp.Column) else None
            if isinstance(one, exp.Is) and isinstance(item, exp.Alias):
                asked = exp.Is(this=closed(item.this.copy()), expression=one.expression.copy())
                made, fact = simplifier.condition(asked)
                if not fact.fails and not isinstance(bare(made), exp.Is):
                    inner.where(made, copy=False)
                    continue
            kept.append(one)
        query.set("where", exp.Where(this=s.and_(*kept)) if kept else None)
        for made_where in (query.args.get("where"), inner.args.get("where")):
            if made_where is not None and made_where is not before:
                made_where.meta[SATISFIED] = all(passes)

    @staticmethod
    def _projected(query: exp.Select, simplifier: Simplifier, rows: int) -> Relation:
        outputs: dict[str, Fact] = {}
        totals: dict[str, Fraction] = {}
        read = rows
        seen: dict[Ast, str] = {}
        same: dict[str, str] = {}
        for item in query.expressions:
            name = item.alias_or_name
            made, fact = simplifier.of(item.this if isinstance(item, exp.Alias) else item)
            if isinstance(item, exp.Alias):
                item.set("this", made)
            elif made is not item or item.name != name:
                own = made.copy() if made is item else made
                item.replace(exp.Alias(this=own, alias=exp.to_identifier(name, quoted=True)))
            outputs[name] = column_of(fact)
            total = _total(made, simplifier)
            if total is not None:
                totals[name] = total
            if _is_settled(made):
                first = seen.setdefault(made, name)
                if first != name:
                    same[name] = first
            for node in nodes(made, exp.Anonymous):
                if str(node.this).upper() == "UNNEST":
                    rows = min(_MANY, rows * (_elements(node) or _MANY))
        # An UNNEST makes several rows of one and so repeats the other columns, which invalidates their totals.
        return Relation(outputs, rows, same, totals if rows == read else {})


def _total(made: Ast, simplifier: Simplifier) -> Fraction | None:
    """Upper bound on the sum of an item's absolute values over all rows; None if unknown."""
    node = bare(made)
    if isinstance(node, exp.Column):
        return simplifier.total(node)
    while isinstance(node, exp.Cast) and _is_counted(kind_of(node.args["to"])):
        node = bare(node.this)
    if not isinstance(node, exp.Sum):
        return None
    # Each row is in one group, so the groups' sums add up to the total; a cast may round each group's sum, by less
    # than one.
    total = simplifier.total(node.this)
    if total is None:
        size = simplifier.of(node.this.copy())[1].size
        total = None if size is None else size * simplifier.rows
    return None if total is None else total + simplifier.rows


def _is_counted(kind: str) -> bool:
    """Whether a cast to this type changes a value by less than one; a cast to floating point may change it by more."""
    return kind in INTEGERS or decimal(kind) is not None


def _is_row_wise(query: exp.Select) -> bool:
    """Whether a query makes its rows from single rows, independent of others."""
    if any(query.args.get(part) for part in ("distinct", "having", "limit", "offset", "order")):
        return False
    return not any(
        not isinstance(node, exp.Anonymous) or str(node.this).upper() == "UNNEST"
        for item in query.expressions
        for node in nodes(item, exp.AggFunc, exp.Window, exp.Anonymous)
    )


def _elements(unnest: exp.Anonymous) -> int:
    """The number of rows that an UNNEST of an array literal makes of one; 0 if unknown."""
    array = unnest.expressions[0]
    return len(array.expressions) if isinstance(array, exp.Array) else 0


def _is_settled(ast: Ast) -> bool:
    """Whether two occurrences of an expression always have the same value."""
    for node in nodes(ast, exp.AggFunc, exp.Anonymous, exp.Window):
        if isinstance(node, exp.AggFunc) and not isinstance(node, exp.Sum | exp.Max | exp.Min):
            return False
        if isinstance(node, exp.Anonymous) and str(node.this).upper() not in SETTLED:
            return False
        if isinstance(node, exp.Window) and not isinstance(node.this, exp.Sum):
            return False
    return True


def _nullable(fact: Fact) -> Fact:
    return one_of([fact, Fact(fact.kind, values=False, fails=False)])


def _united(left: Relation, right: Relation) -> Relation:
    names = dict(zip(right.columns, left.columns, strict=True))
    pairs = zip(left.columns.items(), right.columns.values(), strict=True)
    same = {names[name]: names[other] for name, other in right.same.items()}
    columns = {name: _of_either(left, right, a, b) for (name, a), b in pairs}
    totals: dict[str, Fraction] = {}
    for name, mine in names.items():
        one, other = left.total(mine), right.total(name)
        if one is not None and other is not None:
            totals[mine] = one + other
    if not left.rows or not right.rows:
        same = dict(left.same) if left.rows else same
        return Relation(columns, left.rows + right.rows, same, totals)
    return Relation(columns, min(_MANY, left.rows + right.rows), _both(left.same, same), totals)


def _of_either(left: Relation, right: Relation, mine: Fact, other: Fact) -> Fact:
    """What is known of a column of a UNION of two relations. One without rows only contributes its type."""
    if mine.kind == other.kind and not (left.rows and right.rows):
        return mine if left.rows else other
    return one_of([mine, other])


def _both(left: Mapping[str, str], right: Mapping[str, str]) -> dict[str, str]:
    """The columns that are equal to an earlier one by both, each with the first such column that is found."""
    made: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for name, mine in left.items():
        other = right.get(name)
        if other is None:
            continue
        if mine == other or right.get(mine) == other:
            made[name] = mine
        elif left.get(other) == mine:
            made[name] = other
        elif first.setdefault((mine, other), name) != name:
            made[name] = first[mine, other]
    return made


def _regroup(group: exp.Group, simplifier: Simplifier) -> None:
    """Drop grouping keys that are constant, but keep one: without any key a grouped query becomes an ungrouped one."""
    kept, dropped = list[Ast](), list[Ast]()
    for key in group.expressions:
        made, _ = simplifier.of(key)
        # Where it is written as a constant here, it is in the items.
        (kept if made.find(exp.Column) else dropped).append(made)
    group.set("expressions", kept or dropped[:1])


def _having(query: exp.Select, simplifier: Simplifier) -> None:
    having = query.args.get("having")
    if having is not None:
        condition, fact = simplifier.condition(having.this)
        if fact.always and not fact.fails:
            query.set("having", None)
        else:
            having.set("this", condition)


def columns_read(
    statement: exp.Expression, relations: Iterable[str], *, drop: bool = False
) -> dict[str, set[str]]:
    """The columns of its relations that affect a statement's result; empty if that cannot be determined.

    Args:
        statement: rendered for DuckDB.
        relations: relations that it reads and does not define.
        drop: remove from the statement, in place, what has no effect; otherwise its text may name further columns.
    """
    try:
        wanted = _prune(statement, relations, drop=drop)
    except _Beyond:
        return {}
    return {name: wanted[name] for name in relations}


def _prune(
    statement: exp.Expression, relations: Iterable[str] = (), *, drop: bool = True
) -> dict[str, set[str]]:
    """Find the columns of a statement's relations that are read and, with `drop`, remove the others in place."""
    with_ = statement.args.get("with_")
    ctes = {cte.alias: cte.this for cte in with_.expressions} if with_ is not None else {}
    wanted: dict[str, set[str]] = {name: set() for name in (*ctes, *relations)}
    _demand(statement, None, wanted, drop=drop)
    for name in reversed(list(ctes)):
        _demand(ctes[name], wanted[name], wanted, drop=drop)
    return wanted


def _demand(
    query: exp.Expression, names: set[str] | None, wanted: dict[str, set[str]], *, drop: bool
) -> None:
    """Keep the named columns of a query (None: all), and record what it then reads of others."""
    if isinstance(query, exp.Union):
        _demand_union(query, names, wanted, drop=drop)
        return
    if isinstance(query, exp.Subquery | exp.Paren):
        _demand(query.this, names, wanted, drop=drop)
        return
    if not isinstance(query, exp.Select):
        raise _Beyond
    items = query.expressions
    if names is not None and not _is_fixed(query):
        items = [item for item in items if _stays(item, names)] or items[:1]
    _demand_of(query, items, wanted, drop=drop)


def _is_fixed(query: exp.Select) -> bool:
    """Whether a query's rows depend on which items it selects: an ungrouped query returns a single row only because of
    its aggregates.
    """
    if query.args.get("distinct") or query.find(exp.Star):
        return True
    if query.args.get("group") is not None:
        return False
    return any(
        nodes(item, exp.AggFunc) and not nodes(item, exp.Window) for item in query.expressions
    )


def _stays(item: Ast, names: set[str]) -> bool:
    """Whether an item is read, or affects the number of rows."""
    if item.alias_or_name in names:
        return True
    return any(str(node.this).upper() == "UNNEST" for node in nodes(item, exp.Anonymous))


def _demand_of(
    query: exp.Select, items: list[Ast], wanted: dict[str, set[str]], *, drop: bool
) -> None:
    """Record what a query reads of others if it selects only these items."""
    if drop and len(items) < len(query.expressions):
        query.set("expressions", items)
    from_ = query.args.get("from_")
    origins = [] if from_ is None else [from_, *(query.args.get("joins") or ())]
    read = _columns_read(query, items)
    for origin in origins:
        source = origin.this
        alias = source.alias or (source.name if isinstance(source, exp.Table) else None)
        names = {name for table, name in read if table in (None, alias)}
        if isinstance(source, exp.Table):
            if source.name in wanted:
                wanted[source.name] |= names
        else:
            _demand(source, names, wanted, drop=drop)


def _columns_read(query: exp.Select, items: list[Ast]) -> set[tuple[str | None, str]]:
    """The columns that a query with these items names itself, without those of subqueries in its FROM."""
    found: set[tuple[str | None, str]] = set()
    elsewhere = ("from_", "with_", "expressions")
    waiting: list[object] = [value for key, value in query.args.items() if key not in elsewhere]
    waiting += items
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, exp.Join):
            waiting += [value for key, value in node.args.items() if key != "this"]
        elif isinstance(node, exp.Query):
            raise _Beyond
        elif isinstance(node, exp.Column):
            found.add((node.table or None, node.name))
        elif isinstance(node, exp.Expression):
            waiting += node.args.values()
    return found


def _demand_union(
    query: exp.Expression, names: set[str] | None, wanted: dict[str, set[str]], *, drop: bool
) -> None:
    """As `_demand`; the branches of a union must keep the same positions."""
    branches, waiting = list[exp.Select](), [query]
    distinct = False
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Union):
            distinct = distinct or bool(node.args.get("distinct"))
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Subquery | exp.Paren):
            waiting.append(node.this)
        else:
            if not isinstance(node, exp.Select):
                raise _Beyond
            branches.append(node)
    fixed = distinct or any(_is_fixed(one) for one in branches)
    places = list(range(len(branches[0].expressions)))
    if names is not None and not fixed:
        places = [
            i
            for i, item in enumerate(branches[0].expressions)
            if item.alias_or_name in names
            or any(_stays(one.expressions[i], set()) for one in branches)
        ] or [0]
    for one in branches:
        _demand_of(one, [one.expressions[i] for i in places], wanted, drop=drop)
