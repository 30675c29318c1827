"""The order of joins: greedy from every start, candidates compared by what is known of them.

Promise: pure functions of arities, equivalences, keys, arrangements, filters and, if used, estimates. A candidate's
score is compared part by part: unique key, length of the key, existing arrangement, few rows, filters, position in
the query. With `enable_join_prioritize_arranged` an existing arrangement counts before the length of the key, unless
the key is empty: a cross join is worse than a new arrangement.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import msgspec

from mzsql.expr import scalar as sc
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.transform.predicates import FilterCharacteristics

Key = tuple[sc.Scalar, ...]


@dataclass(frozen=True)
class JoinInput:
    """What the planner knows of an input.

    Attributes:
        arity: its number of columns.
        unique_keys: its unique keys.
        arrangements: the keys by which it is available arranged, at no cost.
        filters: what is known of the filters on it.
        cardinality: its estimated number of rows, if estimates are used and it is known.
    """

    arity: int
    unique_keys: tuple[tuple[int, ...], ...]
    arrangements: tuple[Key, ...]
    filters: FilterCharacteristics
    cardinality: int | None = None


class Score(msgspec.Struct, frozen=True, order=True):
    """How good it is to look up an input next; greater is better."""

    unique: bool
    arranged_first: tuple[
        bool, ...
    ]  # whether it has a key and is arranged, where that counts more than the key's length
    key_length: int
    arranged: bool
    fewer: tuple[int, ...]  # minus its rows, where they are known
    filters: FilterCharacteristics
    earlier: int  # minus the input's position

    def code(self) -> str:
        """The score as EXPLAIN prints it: ``UKA``, ``KA|10|ef``."""
        letters = "U" if self.unique else ""
        letters += "K" * self.key_length
        letters += "A" if self.arranged else ""
        letters += "".join(f"|{-rows}|" for rows in self.fewer)
        return letters + self.filters.code()

    def rank(self) -> tuple[object, ...]:
        """The score as a tuple, which compares faster."""
        f = self.filters
        by_filters = (f.literal_equality, f.like, f.is_null, f.inequality, f.any_filter)
        return (
            self.unique,
            self.arranged_first,
            self.key_length,
            self.arranged,
            self.fewer,
            by_filters,
            self.earlier,
        )


class Step(msgspec.Struct, frozen=True):
    """Look up the input `relation` by `key`, over its own columns."""

    score: Score
    relation: int
    key: Key


class JoinGraph:
    """The inputs and equivalences of a join, prepared for ordering."""

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        equivalences: Sequence[Sequence[sc.Scalar]],
        *,
        arranged_first: bool = False,
    ) -> None:
        self.inputs = list(inputs)
        self._arranged_first = arranged_first
        self._owner = [i for i, part in enumerate(inputs) for _ in range(part.arity)]
        self._starts: list[int] = []
        total = 0
        for part in inputs:
            self._starts.append(total)
            total += part.arity
        self._classes = [list(cls) for cls in equivalences]
        self._homes: dict[sc.Scalar, frozenset[int]] = {}
        # `members`: for each class, its members with the inputs they read. `_own`: for each input, by class, the
        # members that read only it, over its own columns.
        self.members = [[(expr, self.homes(expr)) for expr in cls] for cls in self._classes]
        self._own: list[dict[int, list[sc.Scalar]]] = [{} for _ in self.inputs]
        for number, members in enumerate(self.members):
            for expr, homes in members:
                if len(homes) == 1:
                    (home,) = homes
                    local = self.to_local(home, expr)
                    self._own[home].setdefault(number, []).append(local)
        #: `owners`: for each class, the inputs that have members of their own in it. `reading`: for each input, the
        #: positions of the members that read it.
        self.owners: list[set[int]] = [set() for _ in self._classes]
        self.reading: list[list[tuple[int, int]]] = [[] for _ in self.inputs]
        self._class_of: dict[sc.Scalar, int] = {}
        for number, members in enumerate(self.members):
            for at, (expr, homes) in enumerate(members):
                self._class_of.setdefault(expr, number)
                if len(homes) == 1:
                    self.owners[number] |= homes
                for home in homes:
                    self.reading[home].append((number, at))
        self._ready = [self.lookups(i) for i in range(len(self.inputs))]
        self._orders: dict[int, tuple[Step, ...]] = {}

    def homes(self, expr: sc.Scalar) -> frozenset[int]:
        """The inputs that an expression reads."""
        found = self._homes.get(expr)
        if found is None:
            found = frozenset(self._owner[column] for column in sc.support(expr))
            self._homes[expr] = found
        return found

    def to_local(self, relation: int, expr: sc.Scalar) -> sc.Scalar:
        """An expression that reads one input, over that input's columns."""
        start = self._starts[relation]
        return sc.permute(expr, {c: c - start for c in sc.support(expr)})

    def bound_key(self, relation: int, bound: AbstractSet[int]) -> Key:
        """The expressions of an input that equal something of the placed inputs, whose classes are `bound`, in order."""
        own = self._own[relation]
        found = [expr for number in own if number in bound for expr in own[number]]
        return tuple(sorted(dict.fromkeys(found), key=_order))

    def partners(self, relation: int, key: Key, placed: frozenset[int]) -> Key | None:
        """Expressions of the placed inputs that equal `key` of `relation`, over the join's columns; None if one is
        missing.
        """
        result: list[sc.Scalar] = []
        start = self._starts[relation]
        for expr in key:
            whole = sc.permute(expr, {c: c + start for c in sc.support(expr)})
            number = self._class_of.get(whole)
            members = [] if number is None else self.members[number]
            partner = next((e for e, homes in members if homes <= placed), None)
            if partner is None:
                return None
            result.append(partner)
        return tuple(result)

    def score(self, relation: int, key: Key) -> Score:
        """The score of looking up `relation` by `key`."""
        part = self.inputs[relation]
        columns = {e.index for e in key if isinstance(e, sc.Column)}
        arranged = key in part.arrangements
        return Score(
            unique=any(set(unique) <= columns for unique in part.unique_keys),
            arranged_first=(bool(key), arranged) if self._arranged_first else (),
            key_length=len(key),
            arranged=arranged,
            fewer=() if part.cardinality is None else (-part.cardinality,),
            filters=part.filters,
            earlier=-relation,
        )

    def lookups(self, relation: int) -> list[tuple[Key, frozenset[int]]]:
        """The arrangements of an input, each with the classes that must be bound for a lookup by it."""
        found: list[tuple[Key, frozenset[int]]] = []
        start = self._starts[relation]
        for key in self.inputs[relation].arrangements:
            wholes = [sc.permute(e, {c: c + start for c in sc.support(e)}) for e in key]
            if key and all(whole in self._class_of for whole in wholes):
                found.append((key, frozenset(self._class_of[whole] for whole in wholes)))
        return found

    def best_lookup(self, relation: int, bound: AbstractSet[int]) -> Step:
        """The best way to look up an input when these classes are bound."""
        keys = [self.bound_key(relation, bound)]
        keys.extend(key for key, needed in self._ready[relation] if needed <= bound)
        steps = [Step(self.score(relation, key), relation, key) for key in keys]
        return max(steps, key=lambda step: step.score)

    def order_from(self, start: int) -> tuple[Step, ...]:
        """The greedy order of the other inputs, from `start`."""
        found = self._orders.get(start)
        if found is not None:
            return found
        frontier = _Frontier(self)
        frontier.place(start)
        steps: list[Step] = []
        while len(steps) < len(self.inputs) - 1:
            check_for_interrupts()
            best = frontier.best()
            steps.append(best)
            frontier.place(best.relation)
        self._orders[start] = tuple(steps)
        return self._orders[start]


class _Frontier:
    """The inputs not yet placed, each with the best way to look it up; updated as inputs are placed."""

    def __init__(self, graph: JoinGraph) -> None:
        self._graph = graph
        # For each member of a class, how many of the inputs that it reads are not placed yet.
        self._missing = [[len(homes) for _, homes in members] for members in graph.members]
        self._bound = {
            number for number, counts in enumerate(self._missing) if any(n == 0 for n in counts)
        }
        self._best = {i: self._found(i) for i in range(len(graph.inputs))}

    def _found(self, relation: int) -> tuple[tuple[object, ...], Step]:
        step = self._graph.best_lookup(relation, self._bound)
        return step.score.rank(), step

    def best(self) -> Step:
        """The input to look up next."""
        return max(self._best.values(), key=lambda found: found[0])[1]

    def place(self, relation: int) -> None:
        """Place an input: what equals one of its expressions may now be looked up by it."""
        del self._best[relation]
        changed: set[int] = set()
        for number, at in self._graph.reading[relation]:
            counts = self._missing[number]
            counts[at] -= 1
            if counts[at] == 0 and number not in self._bound:
                self._bound.add(number)
                changed.update(self._graph.owners[number])
        for other in changed & self._best.keys():
            self._best[other] = self._found(other)


@dataclass(frozen=True)
class LinearOrder:
    """A start with its key and score, and the steps after it."""

    start: Step
    steps: tuple[Step, ...]


def linear_order(graph: JoinGraph) -> LinearOrder:
    """The order from the start whose worst candidate is best."""
    options: list[tuple[tuple[Score, list[Score]], LinearOrder]] = []
    for start in range(len(graph.inputs)):
        steps = graph.order_from(start)
        key: Key = ()
        if steps:
            partners = graph.partners(steps[0].relation, steps[0].key, frozenset({start}))
            assert partners is not None
            key = tuple(graph.to_local(start, expr) for expr in partners)
        order = LinearOrder(Step(graph.score(start, key), start, key), steps)
        scores = _accumulated([order.start.score, *(step.score for step in steps)])
        # An order is as good as its worst look-up, which may make the most rows; the others break ties.
        options.append(((min(scores), scores), order))
    (_, scores), chosen = max(options, key=lambda option: option[0])
    first, *later = (
        Step(score, step.relation, step.key)
        for score, step in zip(scores, (chosen.start, *chosen.steps), strict=True)
    )
    return LinearOrder(first, tuple(later))


def _accumulated(scores: list[Score]) -> list[Score]:
    """Scores in which filters on earlier inputs also count for later ones."""
    result: list[Score] = []
    filters = FilterCharacteristics()
    for score in scores:
        filters |= score.filters
        result.append(msgspec.structs.replace(score, filters=filters))
    return result


def new_arrangements(graph: JoinGraph, paths: Sequence[Sequence[Step]]) -> int:
    """How many arrangements a delta join by these paths would have to make."""
    return len(
        {
            (step.relation, step.key)
            for path in paths
            for step in path
            if step.key not in graph.inputs[step.relation].arrangements
        }
    )


def linear_arrangements(graph: JoinGraph, order: LinearOrder) -> int:
    """How many arrangements a differential join would have to make, including intermediate streams."""
    inputs = sum(
        1
        for step in (order.start, *order.steps)
        if step.key not in graph.inputs[step.relation].arrangements
    )
    # The stream is arranged for each stage but the first, which begins with an input.
    return len(graph.inputs) - 2 + inputs


def _order(expr: sc.Scalar) -> tuple[int, int, str]:
    if isinstance(expr, sc.Column):
        return (0, expr.index, "")
    return (1, 0, repr(expr))
