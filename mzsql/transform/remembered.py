"""What a part of a plan depends on, so that what a transform made of it once in a run need not be made again.

Promise: two parts have the same key only if they are the same object and what they read of the bindings around them, directly or through
other bindings, is the same. Equal parts of the plans of a run are one object (`mzsql.transform.visit.shared`): identity tells them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class ScopedPass(ABC):
    """One traversal that has an eye for some kinds of nodes, and for the bindings around them.

    What becomes of a part is remembered in this run, under the name of the pass, by all that `visited` may look at (`Scope`).
    """

    def __init__(self, name: str, where: int) -> None:
        self._scope = Scope()
        self._where = where
        self._known: dict[Key, mir.Relation] = memo(name)

    def visit(self, rel: mir.Relation) -> mir.Relation:
        """The relation rewritten; itself where it has no node of these kinds."""
        if not self._scope.part(rel).kinds & self._where:
            return rel
        key = self._scope.key(rel)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.visited(rel)
        return found

    @abstractmethod
    def visited(self, rel: mir.Relation) -> mir.Relation:
        """What becomes of a part that is not known yet: its inputs by way of `visit`, what it binds told to the scope."""
