"""Keys of parts of a plan, by which a transform's results are reused within a run.

Promise: two parts have the same key only if they are the same object and what they read of the bindings around them,
directly or through other bindings, is the same. Equal parts of the plans of a run are one object
(`mzsql.transform.visit.shared`), so identity suffices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import Part, part_of, parts

#: A part of a plan, by identity, and the bindings around it that it reads.
Key = int | tuple[int, ...]


class Scope:
    """The bindings around a part of a plan, each identified by its value and by what that reads."""

    def __init__(self) -> None:
        self._parts = parts()
        self._values: dict[Hashable, int] = memo("bound values")
        self._bound: dict[int, int] = {}

    def bind(self, local: int, value: mir.Relation) -> None:
        """Let `local` stand for `value`, which is read in the present scope."""
        self.bind_as(local, self.key(value))

    def bind_as(self, local: int, what: Hashable) -> None:
        """Let `local` stand for something of which only `what` matters."""
        self._bound[local] = self._values.setdefault(what, len(self._values))

    def unbind(self, local: int) -> None:
        """Forget `local`."""
        self._bound.pop(local, None)

    def key(self, rel: mir.Relation) -> Key:
        """Identifies what the meaning of a relation depends on; unique as long as the run lasts."""
        order = (self._parts.get(id(rel)) or part_of(rel, self._parts)).order
        if not order:
            return id(rel)
        bound = self._bound
        return (id(rel), *[bound.get(local, -1) for local in order])

    def part(self, rel: mir.Relation) -> Part:
        """What is known of a relation by itself."""
        return self._parts.get(id(rel)) or part_of(rel, self._parts)


class ScopedPass(ABC):
    """A traversal that is interested in some kinds of nodes, and in the bindings around them.

    Results are remembered in this run, under the name of the pass, by everything that `visited` may look at
    (`Scope`).
    """

    def __init__(self, name: str, where: int) -> None:
        self._scope = Scope()
        self._where = where
        self._known: dict[Key, mir.Relation] = memo(name)

    def visit(self, rel: mir.Relation) -> mir.Relation:
        """The rewritten relation; itself if it has no node of these kinds."""
        if not self._scope.part(rel).kinds & self._where:
            return rel
        key = self._scope.key(rel)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.visited(rel)
        return found

    @abstractmethod
    def visited(self, rel: mir.Relation) -> mir.Relation:
        """Rewrite a part that is not known yet: its inputs through `visit`, with its bindings in scope."""
