"""The order of joins: greedy from every start, candidates compared by what is known of them (reference facts 6.6).

Promise: pure functions of arities, equivalences, keys, arrangements and filters; no statistics. A candidate's score is compared part by
part: unique key, length of the key, arranged already, filters on it, position in the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr import scalar as sc
from mzsql.transform.predicates import FilterCharacteristics

Key = tuple[sc.Scalar, ...]


@dataclass(frozen=True)
class JoinInput:
    """What the planner knows of an input.

    Attributes:
        arity: its number of columns.
        unique_keys: its unique keys.
        arrangements: the keys by which it can be had arranged at no cost.
        filters: what is known of the filters on it.
    """

    arity: int
    unique_keys: tuple[tuple[int, ...], ...]
    arrangements: tuple[Key, ...]
    filters: FilterCharacteristics


@dataclass(frozen=True, order=True)
class Score:
    """How good it is to look up an input next; greater is better."""

    unique: bool
    key_length: int
    arranged: bool
    filters: FilterCharacteristics
    earlier: int  # minus the input's position

    def code(self) -> str:
        """As EXPLAIN prints it: ``UKA``, ``KAef``."""
        letters = "U" if self.unique else ""
        letters += "K" * self.key_length
        letters += "A" if self.arranged else ""
        return letters + self.filters.code()


@dataclass(frozen=True)
class Step:
    """Look up input `relation` by `key`, over its own columns."""

    score: Score
    relation: int
    key: Key


class JoinGraph:
    """Inputs and equivalences of a join, ready to be ordered."""

    def __init__(
        self, inputs: Sequence[JoinInput], equivalences: Sequence[Sequence[sc.Scalar]]
    ) -> None:
        self.inputs = list(inputs)
        self._owner = [i for i, part in enumerate(inputs) for _ in range(part.arity)]
        self._starts: list[int] = []
        total = 0
        for part in inputs:
            self._starts.append(total)
            total += part.arity
        self._classes = [list(cls) for cls in equivalences]
        self._homes: dict[sc.Scalar, frozenset[int]] = {}
        # Of each class its members with their inputs, and of each input the members that read it alone, over its own columns.
        self._members = [[(expr, self.homes(expr)) for expr in cls] for cls in self._classes]
        self._own: list[list[list[sc.Scalar]]] = [[[] for _ in self._classes] for _ in self.inputs]
        for number, members in enumerate(self._members):
            for expr, homes in members:
                if len(homes) == 1:
                    (home,) = homes
                    self._own[home][number].append(self.to_local(home, expr))

    def homes(self, expr: sc.Scalar) -> frozenset[int]:
        """The inputs that an expression reads."""
        found = self._homes.get(expr)
        if found is None:
            found = frozenset(self._owner[column] for column in sc.support(expr))
            self._homes[expr] = found
        return found

    def to_local(self, relation: int, expr: sc.Scalar) -> sc.Scalar:
        """An expression of one input over that input's columns."""
        start = self._starts[relation]
        return sc.permute(expr, {c: c - start for c in sc.support(expr)})

    def bound_key(self, relation: int, placed: frozenset[int]) -> Key:
        """The expressions of an input that are equal to something of the placed inputs, in order."""
        found: list[sc.Scalar] = []
        for members, own in zip(self._members, self._own[relation], strict=True):
            if own and any(homes <= placed for _, homes in members):
                found.extend(own)
        return tuple(sorted(dict.fromkeys(found), key=_order))

    def partners(self, relation: int, key: Key, placed: frozenset[int]) -> Key | None:
        """Expressions of the placed inputs equal to `key` of `relation`, over the join's columns; None where one lacks."""
        result: list[sc.Scalar] = []
        start = self._starts[relation]
        for expr in key:
            whole = sc.permute(expr, {c: c + start for c in sc.support(expr)})
            cls = next((c for c in self._classes if whole in c), [])
            partner = next((e for e in cls if self.homes(e) <= placed), None)
            if partner is None:
                return None
            result.append(partner)
        return tuple(result)

    def score(self, relation: int, key: Key) -> Score:
        """The score of looking up `relation` by `key`."""
        part = self.inputs[relation]
        columns = {e.index for e in key if isinstance(e, sc.Column)}
        return Score(
            unique=any(set(unique) <= columns for unique in part.unique_keys),
            key_length=len(key),
            arranged=key in part.arrangements,
            filters=part.filters,
            earlier=-relation,
        )

    def order_from(self, start: int) -> tuple[Step, ...]:
        """The greedy order of the others from `start`."""
        placed = frozenset({start})
        steps: list[Step] = []
        while len(placed) < len(self.inputs):
            candidates: list[Step] = []
            for relation in range(len(self.inputs)):
                if relation in placed:
                    continue
                keys = [self.bound_key(relation, placed)]
                keys.extend(
                    key
                    for key in self.inputs[relation].arrangements
                    if key and self.partners(relation, key, placed) is not None
                )
                candidates.extend(Step(self.score(relation, key), relation, key) for key in keys)
            best = max(candidates, key=lambda step: step.score)
            steps.append(best)
            placed |= {best.relation}
        return tuple(steps)


@dataclass(frozen=True)
class LinearOrder:
    """A start with its key and score, and the steps after it."""

    start: Step
    steps: tuple[Step, ...]


def linear_order(graph: JoinGraph) -> LinearOrder:
    """The start whose worst candidate is best."""
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
        options.append(((min(scores), scores), order))
    (_, scores), chosen = max(options, key=lambda option: option[0])
    first, *later = (
        Step(score, step.relation, step.key)
        for score, step in zip(scores, (chosen.start, *chosen.steps), strict=True)
    )
    return LinearOrder(first, tuple(later))


def _accumulated(scores: list[Score]) -> list[Score]:
    """Filters of earlier inputs make the later ones small too."""
    result: list[Score] = []
    filters = FilterCharacteristics()
    for score in scores:
        filters |= score.filters
        result.append(Score(score.unique, score.key_length, score.arranged, filters, score.earlier))
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
    """How many arrangements a differential join would have to make, intermediate streams included."""
    inputs = sum(
        1
        for step in (order.start, *order.steps)
        if step.key not in graph.inputs[step.relation].arrangements
    )
    return len(graph.inputs) - 2 + inputs


def _order(expr: sc.Scalar) -> tuple[int, int, str]:
    if isinstance(expr, sc.Column):
        return (0, expr.index, "")
    return (1, 0, repr(expr))
