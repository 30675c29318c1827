"""What a replica provides to each of its dataflows.

Promise: only fields; their owners say what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mzsql.compute.dependencies import ComputeSettings, ExportLog, StorageReader
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.protocol import Respond
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.elapsed import Elapsed
from mzsql.compute.replica.endings import Closes
from mzsql.compute.replica.hydration.databases import HydrationDatabases
from mzsql.compute.replica.hydration.filling import Beside
from mzsql.compute.replica.step.deltas import Deltas
from mzsql.persist import Clock, PersistClient
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId


@dataclass
class Shared:
    """What a replica provides to each of its dataflows: clients, engines, settings, and whom to tell."""

    replica_id: str
    persist: PersistClient
    spark: SparkStart
    storage: StorageReader
    arrangements: ArrangementShards
    driver: Driver
    settings: ComputeSettings
    deltas: Deltas
    clock: Clock
    #: the frontier of another dataflow of this replica, which maintains an index
    frontier: Callable[[GlobalId], Frontier]
    #: opens handles of this dataflow's own on another dataflow's index
    open_index: Callable[[GlobalId], Arrangement]
    #: what the replica has installed, and whether it is about to end
    installed: Closes
    #: runs the sorting of what hydrations write, beside the writing
    beside: Beside
    #: the databases that in-process hydrations run in
    databases: HydrationDatabases
    #: runs work that makes later steps faster but that no step needs, beside other work
    later: Callable[[Callable[[], None]], None]
    #: called by long work between two short parts of it; waits a moment where steps are under way
    let_steps_pass: Callable[[], None]
    respond: Respond
    #: tells at once how long the replica was at each node of a dataflow
    times: Callable[[GlobalId, Elapsed], None]
    #: the log in which outputs become durable together; None if each view writes its own shard
    exports: ExportLog | None = None
