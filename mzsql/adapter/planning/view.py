"""A plain view as a planner has it.

Promise: what is read off its expression is read once.
"""

from __future__ import annotations

import msgspec

from mzsql.adapter.planning.walk import global_gets, unmaterializables
from mzsql.expr.relation import Relation
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import RelationDesc

#: What is kept of a builtin view in a file.
RELATIONS: msgspec.msgpack.Decoder[Relation] = msgspec.msgpack.Decoder(Relation)


class View(msgspec.Struct, frozen=True, dict=True):
    """A plain view, planned: its locally optimized MIR and its columns."""

    mir: Relation
    desc: RelationDesc

    @lazy_property
    def reads(self) -> frozenset[GlobalId]:
        """The ids that it names; plain views are not expanded."""
        return global_gets(self.mir)

    @lazy_property
    def calls(self) -> frozenset[str]:
        """The session- or time-dependent functions that it calls itself."""
        return unmaterializables(self.mir)
