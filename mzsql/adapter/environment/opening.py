"""The first steps of opening an environment: its stores, its entry in the catalog, its deploy generation.

Promise: nothing is written before it is certain that the stores hold the requested environment, in a format that this
program knows.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping

import msgspec

from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.environment.locations import Locations, check_blob, mark_blob, refuse_newer
from mzsql.catalog import durable
from mzsql.catalog.change import Change
from mzsql.catalog.commands.deployments import bootstrap, check_generation, promote
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import SIZES, Meta
from mzsql.catalog.state import CatalogState
from mzsql.location import Blob, default_registry
from mzsql.persist import PersistClient, Settings, SystemClock
from mzsql.repr.errors import EnvironmentRefused, InternalError, InvalidParameter
from mzsql.repr.version import VERSION
from mzsql.storage import ManagedKind

DEFAULT_SIZE = "2"

#: The kind of collections fed by introspection subscribes. A replica's rows stay until the replica sends them again or
#: is dropped. They change with every tick of a busy environment, so they are written at most every five seconds, the
#: first change after a quiet time at once: a tick itself costs only a few writes.
_INTROSPECTION = ManagedKind(True, lasting=(0,), pause=5.0)


def _hydration(*lasting: int) -> ManagedKind:
    """The kind of collections about hydration: written at once while little happens, once a second while many dataflows
    hydrate, so that these writes do not compete with the hydrations' own.
    """
    return ManagedKind(True, lasting=lasting, pause=0.05, longest_pause=1.0)


#: The builtin sources that are storage-managed collections, and the kind of each.
MANAGED: Mapping[tuple[str, str], ManagedKind] = {
    ("mz_internal", "mz_compute_operator_hydration_statuses_per_worker"): _hydration(0, 2),
    ("mz_internal", "mz_compute_hydration_times"): _hydration(1, 0),
    ("mz_internal", "mz_compute_dataflow_statuses"): _hydration(0, 1),
    ("mz_internal", "mz_compute_hydration_progress_unified"): _hydration(0),
    ("mz_internal", "mz_compute_frontiers_unified"): _INTROSPECTION,
    ("mz_internal", "mz_compute_import_frontiers_unified"): _INTROSPECTION,
    ("mz_internal", "mz_compute_elapsed_unified"): _INTROSPECTION,
    ("mz_internal", "mz_wallclock_lag_history"): ManagedKind(
        False, most_rows=10_000, oldest_by=3, pause=5.0
    ),
    ("mz_internal", "mz_cluster_replica_status_history"): ManagedKind(
        False, most_rows=2000, oldest_by=4, pause=1.0
    ),
    ("mz_internal", "mz_storage_usage_by_shard"): ManagedKind(
        False, most_rows=50_000, oldest_by=3, pause=5.0
    ),
    ("mz_internal", "mz_cluster_replica_metrics_history"): ManagedKind(
        False, most_rows=50_000, oldest_by=8, pause=5.0
    ),
    ("mz_internal", "mz_refreshes"): ManagedKind(False, most_rows=2000, oldest_by=12, pause=5.0),
}


def open_persist(
    locations: Locations,
    undo: contextlib.ExitStack,
    settings: Settings | None,
    clock: SystemClock,
) -> PersistClient:
    """Open the environment's Blob and Consensus stores.

    Args:
        locations: the stores' URLs.
        undo: gets the callbacks that close what was opened.
        settings: persist's settings.
        clock: the wall clock and the monotonic one.

    Returns:
        The client of the shards, which writes nothing as its own version before `take_over`.
    """
    registry = default_registry()
    blob = registry.open_blob(locations.blob)
    undo.callback(blob.close)
    consensus = registry.open_consensus(locations.consensus)
    undo.callback(consensus.close)
    persist = PersistClient(
        blob,
        consensus,
        clock=clock,
        settings=settings,
        blob_url=locations.blob,
        consensus_url=locations.consensus,
        version=VERSION,
        takes_over=False,
    )
    undo.callback(persist.close)
    return persist


def join_deployment(catalog: DurableCatalog, wanted: int | None) -> tuple[int, bool]:
    """The deploy generation that this process opens with, and whether it is yet to be promoted.

    Raises:
        InvalidParameter: the generation is not a 63-bit number from 0 on.
        Fenced: a higher generation is in charge.
    """
    state = catalog.state
    if wanted is not None and not 0 <= wanted < 1 << 63:
        raise InvalidParameter(f"a deploy generation is a number from 0 on, not {wanted}")
    generation = state.generation if wanted is None else wanted
    check_generation(state, generation)
    catalog.generation = generation
    # In a new environment there is no generation to wait for.
    return generation, state.meta is not None and generation > state.generation


def check_entry(
    catalog: DurableCatalog,
    persist: PersistClient,
    blob: Blob,
    locations: Locations,
    now: int,
    *,
    read_only: bool,
) -> Meta:
    """The environment's entry in the catalog; written first where the environment is new and may be written.

    Raises:
        EnvironmentRefused: there is none to read, or the catalog or the Blob store belongs to another environment or a
            newer format.
    """
    where = locations.where
    meta = catalog.state.meta
    if meta is None and read_only:
        raise EnvironmentRefused(f"there is no mzsql environment at {where}")
    if meta is not None:
        refuse_newer(meta.format_version, where)
        if locations.environment_id not in (None, meta.environment_id):
            raise EnvironmentRefused(
                f"{where} holds the catalog of another environment ({meta.environment_id}, not {locations.environment_id})"
            )
        check_blob(blob, locations, meta.environment_id, marked=meta.blob_marked)
    fresh = Meta(
        environment_id=locations.environment_id or str(uuid.uuid4()),
        format_version=durable.FORMAT_VERSION,
        wal_shard=persist.new_shard_id(),
        cache_shard=persist.new_shard_id(),
        created_at=now,
    )
    missing = {f"{s}.{n}": persist.new_shard_id() for s, n in MANAGED}

    def first_entries(state: CatalogState) -> tuple[Change, None]:
        change = bootstrap(state, fresh, size=DEFAULT_SIZE, workers=SIZES[DEFAULT_SIZE].total)
        if state.meta is None and catalog.generation:
            change |= promote(state, catalog.generation, this_process(), now)
        managed = {name: shard for name, shard in missing.items() if name not in state.managed}
        return change | Change(managed=managed), None

    if meta is None and catalog.sync().meta is None:
        # Check before the first write. A process that creates the environment at the same moment marks the Blob store
        # only after its entry is in the catalog.
        check_blob(blob, locations, fresh.environment_id)
    if not read_only:
        catalog.transact(first_entries)
    meta = catalog.state.meta
    if meta is None:
        raise InternalError("the catalog has no entry of its environment")
    if not (meta.blob_marked or read_only):
        mark_blob(blob, locations, meta.environment_id)
        meta = msgspec.structs.replace(meta, blob_marked=True)
        marked = Change(meta=meta)
        catalog.transact(lambda _: (marked, None))
    return meta
