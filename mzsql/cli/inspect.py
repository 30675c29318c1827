"""What an environment stores, shard by shard, for the person who wonders where the bytes are.

Promise: it opens the environment for reading only. Sizes are those that the shards' states tell; the Blob store is not searched.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mzsql.adapter.environment import CATALOG_SHARD, Environment
from mzsql.adapter.locations import locate
from mzsql.cli.output import print_csv, print_table
from mzsql.persist.state import ShardState
from mzsql.repr.frontier import show

_COLUMNS = (
    "owner",
    "shard",
    "since",
    "upper",
    "batches",
    "parts",
    "updates",
    "bytes",
    "inline_bytes",
    "readers",
    "holds",
    "seqno",
)


def owners(env: Environment) -> dict[str, str]:
    """Whose each shard is that the catalog knows."""
    state = env.catalog.state
    known = {
        CATALOG_SHARD: "the catalog",
        env.meta.wal_shard: "the tables' write-ahead log",
        env.meta.cache_shard: "the expression cache",
    }
    known |= {
        item.shard: f"{item.kind} {item.full_name}" for item in state.items.values() if item.shard
    }
    known |= {shard: f"source {name}" for name, shard in state.managed.items()}
    for name, shard in state.arrangements.items():
        replica, _, fingerprint = name.partition("/")
        known[shard] = f"arrangement {fingerprint[:12]} of replica {replica}"
    return known


def _row(shard: str, owner: str, state: ShardState) -> tuple[object, ...]:
    return (
        owner,
        shard,
        show(state.since),
        show(state.upper),
        len(state.trace),
        sum(len(batch.parts) for batch in state.trace),
        sum(batch.rows for batch in state.trace),
        sum(batch.size for batch in state.trace),
        state.inline_size,
        len(state.readers),
        len(state.critical),
        state.seqno,
    )


def print_inspection(path: Path, style: str) -> None:
    """Print a row for each shard of the environment in a directory, the largest first.

    Raises:
        EnvironmentRefused: the directory is not an environment, or one of a newer format.
    """
    env = Environment.open(locate(path, create=False), read_only=True)
    try:
        known = owners(env)
        rows = []
        for shard in sorted(set(known) | set(env.persist.consensus.list_keys())):
            state = env.persist.inspect(shard)
            if state is not None and not state.finalized:
                rows.append(_row(shard, known.get(shard, "nobody the catalog knows"), state))
    finally:
        env.close()
    rows.sort(key=lambda row: (-int(str(row[7])), str(row[0])))
    show_rows = print_csv if style == "csv" else print_table
    show_rows(_COLUMNS, rows, sys.stdout)
