"""The nodes of a physical plan in the order and under the names in which EXPLAIN PHYSICAL PLAN prints them.

Promise: each node of a plan is there once, a parent before its children; its nesting is how far EXPLAIN indents it, from 0.
"""

from __future__ import annotations

import msgspec

from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.physical import PhysicalPrinter
from mzsql.lir import plan as lir


class Operator(msgspec.Struct, frozen=True):
    """A node.

    Attributes:
        lir_id: its id.
        name: its line in EXPLAIN, without attributes.
        parent: the node that it is a child of; None for the root.
        nesting: how deep it is.
    """

    lir_id: int
    name: str
    parent: int | None
    nesting: int


class _Heads(PhysicalPrinter):
    """Remembers the first line of each node instead of a whole text."""

    def __init__(self, humanizer: Humanizer) -> None:
        super().__init__(humanizer, ExplainConfig())
        self.found: dict[int, tuple[str, int]] = {}

    def _head(self, level: int, text: str, plan: lir.Plan) -> None:
        self.found[plan.lir_id] = text, level - 1


def operators(plan: lir.Plan, humanizer: Humanizer) -> list[Operator]:
    """The nodes of an object's plan."""
    heads = _Heads(humanizer)
    heads.plan(plan, None, 0)
    parents = {child.lir_id: node.lir_id for node in lir.walk(plan) for child in lir.children(node)}
    for node in lir.walk(plan):
        # A binding of several that EXPLAIN prints as one has no line of its own: it stands beside the first.
        if node.lir_id not in heads.found:
            _, level = heads.found[parents[node.lir_id]]
            heads.found[node.lir_id] = "Return", level
    return [
        Operator(lir_id, name, parents.get(lir_id), level)
        for lir_id, (name, level) in heads.found.items()
    ]
