"""What objects need, by themselves or through others.

Promise: pure functions over one statement's dependencies; the pairs come one by one, so that only those of one object are held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mzsql.repr.ids import GlobalId

#: What each object needs itself.
Direct = Mapping[GlobalId, Collection[GlobalId]]


def reached(direct: Direct) -> Iterator[tuple[GlobalId, GlobalId]]:
    """Each object with each that it needs, itself or through others, once."""
    for start, needs in direct.items():
        for gid in _below(direct, needs):
            yield start, gid


def roots(direct: Direct) -> Iterator[tuple[GlobalId, GlobalId]]:
    """Each object with each of those that it is made of in the end, which need nothing themselves."""
    for start, needs in direct.items():
        for gid in _below(direct, needs):
            if not direct.get(gid):
                yield start, gid


def _below(direct: Direct, needs: Collection[GlobalId]) -> Iterator[GlobalId]:
    """What is needed, and what that needs."""
    met, waiting = set(needs), list(needs)
    while waiting:
        gid = waiting.pop()
        yield gid
        for one in direct.get(gid, ()):
            if one not in met:
                met.add(one)
                waiting.append(one)
