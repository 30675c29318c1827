"""Cuts a step's statement into pieces where parts of it are shared, for Spark.

Promise: `pieces` turns a statement with CTEs into statements to be run one after another, each reading the results
of earlier ones by name; together they have the same result. Spark inlines a CTE at each place that names it, so a
chain in which every node is named twice grows as a power of two, and its analysis and optimization with it (seconds
for a step over a few rows). A piece of its own costs one more job and one small relation, so a CTE becomes one only
if that saves more than it costs. DuckDB materializes CTEs and needs no cuts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.expr.nodes import nodes
from mzsql.render.statement import identifier

#: A cut must save at least so many inlined CTEs. Measured on Spark 4.3, warm: an inlined CTE costs about 4 to 8 ms of
#: analysis and optimization, a piece of its own 60 to 100 ms.
MINIMUM_GAIN = 15
#: Most pieces of a statement.
MAXIMUM_PIECES = 24


@dataclass(frozen=True)
class Piece:
    """A statement; `name` is the relation as which later pieces read its result, None for the last piece.

    `reads`: the relations, including earlier pieces, that the statement names.
    """

    name: str | None
    statement: exp.Expression
    reads: tuple[str, ...]


def pieces(statement: exp.Expression) -> tuple[Piece, ...]:
    """The statement's pieces, in the order in which they must run; a single one if no cut is worthwhile."""
    body = statement.copy()
    with_ = body.args.get("with_")
    ctes: dict[str, exp.Expression] = {}
    if with_ is not None:
        assert not with_.args.get("recursive"), "a step has no recursive CTEs"
        ctes = {cte.alias: cte.this for cte in with_.expressions}
        body.set("with_", None)
    reads = {name: _named(query) for name, query in ctes.items()}
    reads_of_body = _named(body)
    cuts = _choose(reads, reads_of_body)
    made = [_piece(name, ctes[name], ctes, reads, cuts) for name in ctes if name in cuts]
    made.append(_piece(None, body, ctes, reads, cuts))
    return tuple(made)


def _named(query: exp.Expression) -> Counter[str]:
    """How often a query names each relation."""
    return Counter(
        found.name
        for found in nodes(query, exp.Table)
        # A hint names an alias.
        if not isinstance(found.parent, exp.JoinHint)
    )


def _choose(reads: Mapping[str, Counter[str]], body: Counter[str]) -> frozenset[str]:
    """The CTEs to cut, the most expensive ones first."""
    cuts: set[str] = set()
    while len(cuts) < MAXIMUM_PIECES - 1:
        sizes = _sizes(reads, cuts)
        uses = _uses(reads, body, cuts)
        gains = {
            name: (uses[name] - 1) * (sizes[name] - 1)
            for name in reads
            if name not in cuts and uses[name] > 1
        }
        best = max(gains, key=lambda name: gains[name], default=None)
        if best is None or gains[best] < MINIMUM_GAIN:
            break
        cuts.add(best)
    return frozenset(cuts)


def _sizes(reads: Mapping[str, Counter[str]], cuts: Iterable[str]) -> dict[str, int]:
    """The number of CTEs that each one amounts to when inlined; definitions precede their uses."""
    cut = set(cuts)
    sizes: dict[str, int] = {}
    for name, names in reads.items():
        sizes[name] = 1 + sum(
            (1 if other in cut else sizes.get(other, 0)) * count for other, count in names.items()
        )
    return sizes


def _uses(
    reads: Mapping[str, Counter[str]], body: Counter[str], cuts: Iterable[str]
) -> Counter[str]:
    """How often each CTE is inlined, over all pieces."""
    cut = set(cuts)
    uses: Counter[str] = Counter({name: count for name, count in body.items() if name in reads})
    for name in reversed(list(reads)):
        # A piece is written out once, whoever reads it.
        times = 1 if name in cut and uses[name] else uses[name]
        for other, count in reads[name].items():
            if other in reads:
                uses[other] += times * count
    return uses


def _piece(
    name: str | None,
    query: exp.Expression,
    ctes: Mapping[str, exp.Expression],
    reads: Mapping[str, Counter[str]],
    cuts: frozenset[str],
) -> Piece:
    needed: set[str] = set()
    others: set[str] = set()
    queue = list(_named(query))
    while queue:
        found = queue.pop()
        if found in cuts or found not in ctes:
            others.add(found)
        elif found not in needed:
            needed.add(found)
            queue.extend(reads[found])
    body = query.copy()
    kept = [
        exp.CTE(this=ctes[one].copy(), alias=exp.TableAlias(this=identifier(one)))
        for one in ctes
        if one in needed
    ]
    if kept:
        body.set("with_", exp.With(expressions=kept))
    return Piece(name, body, tuple(sorted(others)))
