"""What a reader reads of parts, piece by piece.

Promise: pieces come in the parts' order, and are what was written; where a part is gone because the reader's lease ran out, that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mzsql.persist.batch import KeySpec, ReadStats
from mzsql.persist.clock import Deadline
from mzsql.persist.errors import MissingPart, SchemaMismatch
from mzsql.persist.leased_parts import PartRef
from mzsql.persist.leases import ReaderLease
from mzsql.persist.opened import Opened
from mzsql.persist.pushdown import Pushdown


def pieces_of(
    opened: Opened,
    lease: ReaderLease,
    refs: Sequence[PartRef],
    deadline: Callable[[], Deadline],
    names: Sequence[str] | None,
    pushdown: Pushdown,
    stats: ReadStats | None,
    *,
    at_once: bool = False,
) -> Iterator[pa.Table]:
    """Yield the updates of parts that a pushdown selects.

    Args:
        opened: the shard.
        lease: the reader's; it is renewed between pieces, unless ``at_once``.
        refs: the parts.
        deadline: makes the deadline of the next piece.
        names: the columns; all by default.
        pushdown: selects.
        stats: what is read is added to it.
        at_once: each part is one piece.

    Raises:
        ExpiredHandle: a part is gone, as the lease had run out.
        MissingPart, CorruptPart, LocationError: a part cannot be read.
    """
    for ref in refs:
        found = opened.parts.pieces(
            ref.part, deadline, columns=names, pushdown=pushdown, stats=stats, at_once=at_once
        )
        try:
            for piece in found:
                if not at_once:  # the consumer may pause between pieces for longer than the lease
                    lease.renew_if_due(deadline())
                yield piece
        except MissingPart:
            state = opened.shard.fetch(deadline())
            assert state is not None
            lease.check_live(state)  # if the lease ran out, that is why the part is gone
            raise


def workers_of(key: KeySpec | None, shard_id: str, workers: Sequence[int]) -> set[int]:
    """The workers asked for: an unknown one would look like one without rows.

    Raises:
        SchemaMismatch: the shard does not have them.
    """
    if key is None:
        raise SchemaMismatch(f"shard {shard_id} has no key, so no workers either")
    for worker in workers:
        if worker not in range(key.workers):
            raise SchemaMismatch(
                f"shard {shard_id}: worker {worker!r} is not in [0, {key.workers})"
            )
    return set(workers)


def sortable(key: KeySpec | None, table: pa.Table) -> KeySpec | None:
    """The key, if the table has all of its columns."""
    return key if key is not None and set(key.columns) <= set(table.column_names) else None
