"""Collections on shards: tables and their write-ahead log, views and indexes and their log, and collections that the
system writes.

`WriteAheadLog` commits table writes, `Tables` applies them to the tables' shards. `ExportLog` commits the outputs of
dataflows. `Collections` reads everything by global id (it is compute's `StorageReader`). `CollectionManager` writes
storage-managed collections in the order of its commands. `SourceWriter` writes what it reads from a source, at the
times given by the source's timestamp bindings (`BindingMinter`, `BindingReader`). docs/architecture.md, "The way of
a write", gives the overview.
"""

from __future__ import annotations

from mzsql.storage.bindings import (
    Binding,
    BindingCompacted,
    BindingReader,
    BindingState,
    Bound,
)
from mzsql.storage.collection import Collection, DurableHold, Hold
from mzsql.storage.collection_manager import CollectionManager
from mzsql.storage.ending import end_shard
from mzsql.storage.export_log import ExportLog, Reach, log_shard_of
from mzsql.storage.managed import ManagedKind, ManagedRow
from mzsql.storage.minting import BindingMinter
from mzsql.storage.source_writer import Source, SourceWriter
from mzsql.storage.storage_collections import Collections
from mzsql.storage.tables import Tables, TableShard, Writing, as_updates, empty_updates
from mzsql.storage.wal import WalEntry, WalState, WriteAheadLog, unapplied_keys

__all__ = [
    "Binding",
    "BindingCompacted",
    "BindingMinter",
    "BindingReader",
    "BindingState",
    "Bound",
    "Collection",
    "CollectionManager",
    "Collections",
    "DurableHold",
    "ExportLog",
    "Hold",
    "ManagedKind",
    "ManagedRow",
    "Reach",
    "Source",
    "SourceWriter",
    "TableShard",
    "Tables",
    "WalEntry",
    "WalState",
    "WriteAheadLog",
    "Writing",
    "as_updates",
    "empty_updates",
    "end_shard",
    "log_shard_of",
    "unapplied_keys",
]
