"""An environment's first entries, and its deploy generation: pure functions from a state to a `Change`."""

from __future__ import annotations

from datetime import UTC, datetime

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.objects import (
    DEFAULT_CLUSTER,
    DEFAULT_SCHEMA,
    Cluster,
    Deployment,
    Meta,
    Replica,
    Schema,
)
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import Fenced


def bootstrap(state: CatalogState, meta: Meta, *, size: str, workers: int) -> Change:
    """The first entries of a new environment; empty where they exist."""
    if state.meta is not None:
        return NOTHING
    cluster = Cluster("u1", DEFAULT_CLUSTER)
    replica = Replica("u1", "r1", cluster.id, size, workers)
    return Change(
        meta=meta,
        schemas={DEFAULT_SCHEMA: Schema("u1", DEFAULT_SCHEMA)},
        clusters={cluster.id: cluster},
        replicas={replica.id: replica},
    )


def promote(state: CatalogState, generation: int, who: str, now: int) -> Change:
    """Put a deploy generation in charge; empty where it already is."""
    if state.generation == generation:
        return NOTHING
    return Change(deployment=Deployment(generation, who, now))


def check_generation(state: CatalogState, generation: int) -> None:
    """Check that no deploy generation above ``generation`` was promoted.

    Raises:
        Fenced: one was. That is final: generations never go back.
    """
    newer = state.deployment
    if newer is None or newer.generation <= generation:
        return
    promoted = datetime.fromtimestamp(newer.promoted_at / 1000, UTC)
    raise Fenced(
        f"fenced by deploy generation {newer.generation}, promoted by {newer.who} at {promoted:%Y-%m-%d %H:%M:%S} UTC: "
        f"this process is of generation {generation}",
        hint=f"Connect again, as of generation {newer.generation} or without naming one; what this process has not committed is lost.",
    )
