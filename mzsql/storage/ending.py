"""Ends the shard of a dropped object, once nobody reads it any more.

Promise: holds of other readers are respected; the environment's own holds are released by whichever process ends the
shard.
"""

from __future__ import annotations

from mzsql.persist import CRITICAL, Holder, PersistClient

HOLD_ID = "environment"
"""The name of the hold that the leading process keeps on each collection."""


def end_shard(
    persist: PersistClient, shard: str, timeout: float | None = None, *, holds: str | None = None
) -> tuple[Holder, ...]:
    """End the shard of a dropped object once nobody reads it any more. Releases the environment's own hold, and those
    with a name (`DurableHold`), since nobody can continue with a dropped object.

    Args:
        persist: the client of the shard.
        shard: the shard.
        timeout: seconds for each call.
        holds: prefix of the names of further holds without a lease to release, whose owner was dropped with the
            object.

    Returns:
        The holders that still keep it from ending.

    Raises:
        LocationError: a backend failed; call it again.
    """
    held = persist.retire(shard, timeout=timeout)
    # They are of what was dropped, whichever process has them now.
    state = persist.inspect(shard) if held else None
    ours = False
    for holder in held:
        if holder.kind != CRITICAL:
            continue
        hold = None if state is None else state.critical.get(holder.id)
        # A hold opened by name has the name as its token, so opening it takes it from nobody.
        named = hold is not None and hold.token == holder.id
        if named or _given_up(holder.id, holds):
            reader = persist.open_critical_reader(
                shard, holder.id, token=holder.id if named else None, timeout=timeout
            )
            reader.release(timeout=timeout)
            ours = True
    return persist.retire(shard, timeout=timeout) if ours else held


def _given_up(name: str, holds: str | None) -> bool:
    return name == HOLD_ID or (holds is not None and name.startswith(holds))
