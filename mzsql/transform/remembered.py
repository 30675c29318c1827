"""What a part of a plan depends on, so that what a transform made of it once in a run need not be made again.

Promise: two parts have the same key only if they are the same object and what they read of the bindings around them, directly or through
other bindings, is the same. Equal parts of the plans of a run are one object (`mzsql.transform.visit.shared`): identity tells them.
"""

from __future__ import annotations

from collections.abc import Hashable

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import Part, part_of, parts

#: A part, and what it reads of the bindings around it.
Key = int | tuple[int, ...]


class Scope:
    """The bindings around a part of a plan, each known by its value and by what that reads."""

    def __init__(self) -> None:
        self._parts = parts()
        self._values: dict[Hashable, int] = memo("bound values")
        self._bound: dict[int, int] = {}

    def bind(self, local: int, value: mir.Relation) -> None:
        """From here on `local` stands for `value`, read within what is bound now."""
        self.bind_as(local, self.key(value))

    def bind_as(self, local: int, what: Hashable) -> None:
        """From here on `local` stands for whatever `what` is all that matters of."""
        self._bound[local] = self._values.setdefault(what, len(self._values))

    def unbind(self, local: int) -> None:
        """From here on nothing is known of `local`."""
        self._bound.pop(local, None)

    def key(self, rel: mir.Relation) -> Key:
        """What the meaning of a relation depends on; it stays unique as long as the run lasts."""
        order = (self._parts.get(id(rel)) or part_of(rel, self._parts)).order
        if not order:
            return id(rel)
        bound = self._bound
        return (id(rel), *[bound.get(local, -1) for local in order])

    def part(self, rel: mir.Relation) -> Part:
        """What is known of a relation by itself."""
        return self._parts.get(id(rel)) or part_of(rel, self._parts)
