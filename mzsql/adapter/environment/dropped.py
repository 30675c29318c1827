"""What is left to do once the catalog no longer names an object with a shard, and once a session is gone.

Promise: a shard is finalized only after the catalog has forgotten it, and as soon as nobody reads it; what a crash leaves
undone, the next one does who opens the environment or leads. Temporary objects go with their session: by the session
itself, or by another process once that which ran it is gone: at once where it was one of this machine, else as soon as
its lease on the catalog's shard has run out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from mzsql.adapter.environment.arrangement_registry import CatalogArrangements
from mzsql.adapter.environment.environment import CATALOG_SHARD, Environment
from mzsql.adapter.environment.leader import is_gone
from mzsql.catalog.change import Change
from mzsql.catalog.commands.items import RETIRED, without_orphans
from mzsql.catalog.commands.schemas import drop_temporary_schemas
from mzsql.catalog.objects import Item, Stored, Table
from mzsql.catalog.state import CatalogState, removed
from mzsql.persist import UpperMismatch


def end_dropped(env: Environment, gone: Iterable[Item]) -> None:
    """Finalize the shards of objects that the catalog has forgotten.

    Reads under way go on: a shard stays recorded as retired until its last reader has gone.
    """
    stored = [item for item in gone if isinstance(item, Stored)]
    _forget_tables(env, [item.shard for item in stored if isinstance(item, Table)])
    arrangements = CatalogArrangements(env.catalog)
    shards = [item.shard for item in stored]
    left = {s: s for s in shards if arrangements.arrangement_shard(RETIRED, s) is None}
    if left:
        arrangements.update(RETIRED, left)
    arrangements.retire(env.persist)


def _forget_tables(env: Environment, shards: list[str]) -> None:
    """Remove dropped tables from the log, so that nobody commits to them any more.

    An append is made even where the log does not know a table: a commit under way that has not seen the drop is
    either before this append, or fails (`mzsql.adapter.commit.group_commit`).
    """
    while shards:
        wal = env.wal.follow()
        ts = max(env.oracle.write_ts(), wal.upper)
        try:
            env.wal.commit(ts, {}, expected=wal, forget=shards)
        except UpperMismatch:
            time.sleep(0)
            continue
        env.oracle.adopt(ts)
        return


def forget_temporary(env: Environment, schemas: Collection[str]) -> list[Item]:
    """Remove schemas of temporary objects, and what is in them, from the catalog; the caller finalizes the shards.

    Returns:
        The objects that were in them, or depended on one that was.
    """

    def command(state: CatalogState) -> tuple[Change, list[Item]]:
        change = drop_temporary_schemas(state, schemas)
        return without_orphans(state, change), removed(state, change)

    gone = env.catalog.transact(command)
    env.sync()
    return gone


def remove_orphaned(env: Environment) -> bool:
    """Remove the temporary objects of sessions whose process is gone.

    Returns:
        Whether there are other temporary objects, whose process may end later.
    """
    state = env.catalog.state
    if not state.temporary:
        return False
    there = env.persist.inspect(CATALOG_SHARD)
    readers = {} if there is None else env.persist.swept(there).readers
    orphaned = [
        one.name
        for one in state.schemas.values()
        if one.session is not None and (is_gone(one.session[0]) or one.session[1] not in readers)
    ]
    if orphaned:
        end_dropped(env, forget_temporary(env, orphaned))
    return len(orphaned) < len(state.temporary)
