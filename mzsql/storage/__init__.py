"""Collections on shards: tables and their write-ahead log, and the collections that mzsql itself keeps.

`WriteAheadLog` commits table writes, `Tables` applies them, `Collections` reads everything by global id (it is compute's
`StorageReader`), `CollectionManager` writes storage-managed collections in the order of its commands.
"""

from __future__ import annotations

from mzsql.storage.collection_manager import CollectionManager
from mzsql.storage.collections import Collection, Collections, Hold
from mzsql.storage.tables import Tables, TableShard, as_updates, empty_updates
from mzsql.storage.wal import WalEntry, WalState, WriteAheadLog, unapplied_keys

__all__ = [
    "Collection",
    "CollectionManager",
    "Collections",
    "Hold",
    "TableShard",
    "Tables",
    "WalEntry",
    "WalState",
    "WriteAheadLog",
    "as_updates",
    "empty_updates",
    "unapplied_keys",
]
