"""The nodes of a physical plan, in the order and with the names of EXPLAIN PHYSICAL PLAN.

Promise: each node occurs once, parents before children; its nesting is EXPLAIN's indentation level, from 0.
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
        parent: its parent's id; None for the root.
        nesting: its depth.
    """

    lir_id: int
    name: str
    parent: int | None
    nesting: int


class _Heads(PhysicalPrinter):
    """Records the first line of each node instead of printing."""

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
        # Several bindings that EXPLAIN prints as one: the others have no line, and are placed beside the first.
        if node.lir_id not in heads.found:
            _, level = heads.found[parents[node.lir_id]]
            heads.found[node.lir_id] = "Return", level
    return [
        Operator(lir_id, name, parents.get(lir_id), level)
        for lir_id, (name, level) in heads.found.items()
    ]
