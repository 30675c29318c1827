"""The order in which dataflows are taken up: that in which somebody could miss them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mzsql.catalog.objects import Item, Maintained
from mzsql.repr.ids import GlobalId


def in_order(
    missing: Mapping[GlobalId, Maintained],
    items: Mapping[GlobalId, Item],
    wanted: Iterable[GlobalId],
) -> Iterator[Maintained]:
    """What is missing: first what is wanted (what a statement is about, what somebody waits for), each after what it is made of; then the
    others, as they are given.
    """
    given: set[GlobalId] = set()
    for gid in wanted:
        yield from _with_inputs(gid, missing, items, given)
    for gid, item in missing.items():
        if gid not in given:
            yield item


def _with_inputs(
    gid: GlobalId,
    missing: Mapping[GlobalId, Maintained],
    items: Mapping[GlobalId, Item],
    given: set[GlobalId],
) -> Iterator[Maintained]:
    """What is missing of an object and of what it is made of, the latter first."""
    left = [(gid, False)]
    while left:
        at, below_given = left.pop()
        if below_given:
            if at in missing:
                yield missing[at]
            continue
        item = items.get(at)
        if item is None or at in given:
            continue
        given.add(at)
        left.append((at, True))
        left += [(below, False) for below in reversed(tuple(item.depends_on))]
