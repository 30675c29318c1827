"""Commands on which process runs a replica: pure functions from a state to a `Change`.

Promise: one process at a time runs a replica: the one that took it last. Taking it fails if it changed since it was
found free.
"""

from __future__ import annotations

import msgspec

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.objects import Replica, ReplicaProcess
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import DuplicateObject, UndefinedObject


def take_replica(
    state: CatalogState, seen: Replica, process: ReplicaProcess, full_name: str
) -> Change:
    """Assign a replica to a process.

    Args:
        state: the catalog.
        seen: the replica as it was when it was found free.
        process: the process.
        full_name: the replica's name for messages.

    Raises:
        UndefinedObject: it was dropped since.
        DuplicateObject: another process has taken it since.
    """
    now = state.replicas.get(seen.id)
    if now is None:
        raise UndefinedObject(f"cluster replica {full_name} was dropped")
    if now.process != seen.process:
        raise DuplicateObject(f"cluster replica {full_name} was taken by another process just now")
    return Change(replicas={seen.id: msgspec.structs.replace(now, process=process)})


def leave_replica(state: CatalogState, replica_id: str, process: ReplicaProcess) -> Change:
    """Release a replica from a process; empty where it is not that process's."""
    now = state.replicas.get(replica_id)
    if now is None or now.process != process:
        return NOTHING
    return Change(replicas={replica_id: msgspec.structs.replace(now, process=None)})
