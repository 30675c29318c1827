"""What objects need, by themselves or through others.

Promise: pure functions over one statement's dependencies; the pairs come one by one, so that only those of one object are held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from mzsql.catalog.objects import Item, Stored, View
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


def made_of(items: Mapping[GlobalId, Item]) -> Callable[[Item], Iterator[GlobalId]]:
    """What gives the tables and materialized views that an object's definition reads, itself or through plain views."""
    plain = {gid: one.depends_on for gid, one in items.items() if isinstance(one, View)}

    def of(item: Item) -> Iterator[GlobalId]:
        read = _below(plain, item.depends_on)
        return (gid for gid in read if isinstance(items.get(gid), Stored))

    return of


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
