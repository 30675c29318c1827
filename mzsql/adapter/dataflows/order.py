"""The order in which dataflows are installed: what a statement waits for first, then as given, inputs before what reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mzsql.catalog.objects import Item, Maintained
from mzsql.repr.ids import GlobalId


def in_order(
    missing: Mapping[GlobalId, Maintained],
    items: Mapping[GlobalId, Item],
    wanted: Iterable[GlobalId],
) -> Iterator[Maintained]:
    """The missing objects, in the order in which to install them.

    Args:
        missing: the objects without a dataflow.
        items: all objects.
        wanted: ids that a statement created or waits for; these come first, each after the missing objects that it
            depends on.

    Returns:
        Each missing object once.
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
    """An object and what it depends on, as far as missing, in depth-first postorder: dependencies first."""
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
