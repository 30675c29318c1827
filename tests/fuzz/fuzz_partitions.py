"""What must hold between mzsql's own answers, whatever the right ones are.

Ternary logic partitioning: the rows of a relation are those for which a condition holds, those for which it does not and those for which
it is unknown; so they are as bags, distinct, grouped and summed up. NoREC: a condition in WHERE, which the optimizer may push, turn and
split, keeps as many rows as it holds in when it stands in the select list, where the optimizer leaves it alone. A join's condition may
stand in WHERE as well, and a full join is a left and a right one, less what both have.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fuzz_engines import Answer, Failure, Rows, Worlds, bag
from fuzz_expressions import Ref
from fuzz_made import qualified
from fuzz_queries import Queries
from fuzz_run import least
from fuzz_schema import EXTREMES, Table
from fuzz_tree import Node, listed, text

#: From the answers to the queries of a law, whether it holds.
Holds = Callable[[list[Rows]], bool]


@dataclass(frozen=True)
class Law:
    """Queries whose answers depend on each other."""

    name: str
    queries: Node
    holds: Holds

    def texts(self) -> list[str]:
        """The queries' texts."""
        return [str(part) for part in self.queries.parts]


def law_of(seed: int, tables: list[Table]) -> Law:
    """The law of a seed."""
    rng = random.Random(f"law {seed}")
    queries = Queries(rng, tables)
    source, refs = queries.relation()
    condition = queries.condition(refs)
    made = [_rows, _distinct, _summed, _grouped, _counted, _joined, _full]
    return rng.choice(made)(rng, queries, source, refs, condition)


def _partition(head: Node, source: Node, condition: Node, tail: Node) -> Node:
    """The whole, and its three parts."""
    wheres = [text(), text(" WHERE ", condition), text(" WHERE NOT ", condition)]
    wheres.append(text(" WHERE ", condition, " IS NULL"))
    return text(*(text("SELECT ", head, " FROM ", source, where, tail) for where in wheres))


def _items(rng: random.Random, refs: tuple[Ref, ...]) -> list[Ref]:
    return rng.sample(refs, rng.randint(1, min(3, len(refs))))


def _rows(
    rng: random.Random, _: Queries, source: Node, refs: tuple[Ref, ...], condition: Node
) -> Law:
    head = listed(", ", [ref.sql for ref in _items(rng, refs)])

    def holds(answers: list[Rows]) -> bool:
        whole, *parts = map(bag, answers)
        return whole == sum(parts, Counter())

    return Law("rows", _partition(head, source, condition, text()), holds)


def _distinct(
    rng: random.Random, _: Queries, source: Node, refs: tuple[Ref, ...], condition: Node
) -> Law:
    head = text("DISTINCT ", listed(", ", [ref.sql for ref in _items(rng, refs)]))

    def holds(answers: list[Rows]) -> bool:
        whole, *parts = map(bag, answers)
        once = all(count == 1 for answer in (whole, *parts) for count in answer.values())
        return once and set(whole) == set().union(*parts)

    return Law("distinct", _partition(head, source, condition, text()), holds)


def _summed(
    rng: random.Random, _: Queries, source: Node, refs: tuple[Ref, ...], condition: Node
) -> Law:
    ref = rng.choice([r for r in refs if r.kind not in ("boolean", "text")] or list(refs))
    total = f", sum({ref.sql})" if ref.kind in ("smallint", "integer", "bigint", "numeric") else ""
    extremes = f", min({ref.sql}), max({ref.sql})" if ref.kind in EXTREMES else ""
    head = text(f"count(*), count({ref.sql}){extremes}{total}")

    def holds(answers: list[Rows]) -> bool:
        (whole,), *parts = answers
        columns = list(zip(*(row for (row,) in parts), strict=True))
        known = [[v for v in column if v is not None] for column in columns]
        rules: list[Callable[..., object]] = [sum, sum]
        rules += [_least, _most] if extremes else []
        rules += [lambda v: sum(v) if v else None] if total else []
        found = [rule(values) for rule, values in zip(rules, known, strict=True)]
        return bag([tuple(found)]) == bag([tuple(whole)])

    return Law("summed", _partition(head, source, condition, text()), holds)


def _rank(value: object) -> tuple[bool, object]:
    """By which values are ordered: NaN is more than all numbers."""
    return isinstance(value, float) and math.isnan(value), value


def _least(values: list) -> object:
    return min(values, key=_rank, default=None)


def _most(values: list) -> object:
    return max(values, key=_rank, default=None)


def _grouped(
    rng: random.Random, _: Queries, source: Node, refs: tuple[Ref, ...], condition: Node
) -> Law:
    keys = _items(rng, refs)
    names = ", ".join(str(ref.sql) for ref in keys)
    head = text(f"{names}, count(*)")

    def holds(answers: list[Rows]) -> bool:
        counts = []
        for answer in answers:
            found: Counter = Counter()
            for row in answer:
                (key,) = bag([row[:-1]])
                found[key] += row[-1]
            counts.append(found)
        return counts[0] == sum(counts[1:], Counter())

    return Law("grouped", _partition(head, source, condition, text(f" GROUP BY {names}")), holds)


def _counted(
    _r: random.Random, _q: Queries, source: Node, _refs: tuple[Ref, ...], condition: Node
) -> Law:
    optimized = text("SELECT count(*) FROM ", source, " WHERE ", condition)
    plain = text("SELECT ", condition, " IS TRUE FROM ", source)

    def holds(answers: list[Rows]) -> bool:
        ((count,),), rows = answers
        return count == sum(1 for (value,) in rows if value)

    return Law("counted", text(optimized, plain), holds)


def _joined(
    rng: random.Random, queries: Queries, source: Node, refs: tuple[Ref, ...], _: Node
) -> Law:
    other, more = queries.table()
    both = qualified((*refs, *more))
    condition = queries.condition(both)
    head = listed(", ", [ref.sql for ref in _items(rng, both)])
    left = text("SELECT ", head, " FROM ", source, " INNER JOIN ", other, " ON ", condition)
    right = text("SELECT ", head, " FROM ", source, " CROSS JOIN ", other, " WHERE ", condition)

    def holds(answers: list[Rows]) -> bool:
        return bag(answers[0]) == bag(answers[1])

    return Law("joined", text(left, right), holds)


def _full(
    rng: random.Random, queries: Queries, source: Node, refs: tuple[Ref, ...], _: Node
) -> Law:
    """A full join on any condition, which PostgreSQL has not, is what its halves are together."""
    other, more = queries.table()
    both = qualified((*refs, *more))
    condition = queries.condition(both)
    head = listed(", ", [ref.sql for ref in _items(rng, both)])
    words = ("FULL", "INNER", "LEFT", "RIGHT")
    joins = (text(source, f" {word} JOIN ", other, " ON ", condition) for word in words)

    def holds(answers: list[Rows]) -> bool:
        full, inner, left, right = map(bag, answers)
        return full + inner == left + right

    return Law("full", text(*(text("SELECT ", head, " FROM ", join) for join in joins)), holds)


def broken(worlds: Worlds, law: Law) -> str:
    """In what way a law does not hold; empty: it does."""
    answers: list[Answer] = [worlds.mine(sql) for sql in law.texts()]
    failures = [a for a in answers if isinstance(a, Failure)]
    if failures:
        return f"fails: {failures[0].sqlstate} {failures[0].message}"
    try:
        return "" if law.holds([a for a in answers if not isinstance(a, Failure)]) else "differs"
    except ValueError:
        return "shape"  # a smaller query that is another law's


def told(worlds: Worlds, law: Law, seed: int, tables: list[Table]) -> str:
    """A broken law, its queries made as small as still show it."""
    how = broken(worlds, law)

    def still(candidate: Node) -> bool:
        return broken(worlds, Law(law.name, candidate, law.holds)) == how

    small = Law(law.name, _together(law.queries, still), law.holds)
    made = [s + ";" for table in tables for s in table.statements()]
    answers = [f"{sql};\n-- {worlds.mine(sql)}" for sql in small.texts()]
    again = f"-- again: make fuzz SEED={seed}"
    return "\n".join([f"-- seed {seed}: {law.name} {how}", *made, *answers, again])


def _together(queries: Node, still: Callable[[Node], bool]) -> Node:
    """The least queries: what is left out of one is left out of all, so that they stay the law's."""
    first, *rest = queries.parts
    assert isinstance(first, Node)
    pieces = _shared(first, rest)
    for piece in pieces:
        found = least(piece, _in_place(queries, piece, still), 150)
        queries = _exchanged(queries, piece, found)
    return queries


def _in_place(queries: Node, piece: Node, still: Callable[[Node], bool]) -> Callable[[Node], bool]:
    """Whether the law is still broken with another piece in place of one."""
    return lambda candidate: still(_exchanged(queries, piece, candidate))


def _shared(first: Node, rest: list[Node | str]) -> list[Node]:
    """The relation and the condition, which stand in several of the queries."""
    found: list[Node] = []
    for query in (first, *rest):
        for part in query.parts if isinstance(query, Node) else ():
            inner = [part, *part.parts] if isinstance(part, Node) else []
            found += [p for p in inner if isinstance(p, Node) and p.parts and p not in found]
    return [p for p in found if sum(_holds(q, p) for q in (first, *rest)) > 1]


def _holds(node: Node | str, piece: Node) -> bool:
    return isinstance(node, Node) and (node == piece or any(_holds(p, piece) for p in node.parts))


def _exchanged(node: Node, piece: Node, new: Node) -> Node:
    if node == piece:
        return new
    parts = tuple(_exchanged(p, piece, new) if isinstance(p, Node) else p for p in node.parts)
    return Node(parts, node.kind, node.typ, node.bound, node.separator)
