"""How the shard of what was dropped ends: once nobody reads it any more, whoever that is.

Promise: what others hold of it is not taken from them; what the environment itself held is given up by whichever process ends it.
"""

from __future__ import annotations

from mzsql.persist import CRITICAL, Holder, PersistClient

HOLD_ID = "environment"
"""The name of the hold that whoever leads keeps on each collection."""


def end_shard(
    persist: PersistClient, shard: str, timeout: float | None = None, *, holds: str | None = None
) -> tuple[Holder, ...]:
    """End the shard of what was dropped once nobody reads it any more; who still does. The environment's own hold is given up, and those
    that go by a name (`DurableHold`): what was dropped cannot be gone on with.

    Args:
        persist: where it is.
        shard: the shard.
        timeout: seconds that each call may take.
        holds: how the names of those holds without a lease begin that are given up, too: their owner was dropped with it.

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
        # One that goes by a name has it for its token, and is not taken from anybody.
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
