"""What the handles of one shard within a client share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from mzsql.persist.batch import KeySpec
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import decode_schema
from mzsql.persist.errors import SchemaMismatch
from mzsql.persist.fetch import PartReader
from mzsql.persist.machine import Context, Shard

if TYPE_CHECKING:
    from mzsql.persist.read import ReadHandle


class Opened:
    """A shard as a client has it open.

    Args:
        shard: its state machine, with a state.
        context: the client's.
        changed: called after each change made here, so that maintenance happens when it is due.
    """

    def __init__(self, shard: Shard, context: Context, changed: Callable[[Opened], None]) -> None:
        self.shard = shard
        self.context = context
        self.changed = changed
        self.schema: pa.Schema = decode_schema(shard.state.schema)
        self.key: KeySpec | None = shard.state.key
        self.parts = PartReader(context, shard.shard_id, self.schema)
        self.maintenance_lock = threading.Lock()
        self._readers: weakref.WeakSet[ReadHandle] = weakref.WeakSet()
        self._readers_lock = threading.Lock()

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self.shard.shard_id

    @property
    def readers(self) -> list[ReadHandle]:
        """The readers that are open and referred to."""
        with self._readers_lock:
            return list(self._readers)

    def add_reader(self, reader: ReadHandle) -> None:
        """Keep a reader's lease renewed while anything refers to it."""
        with self._readers_lock:
            self._readers.add(reader)

    def discard_reader(self, reader: ReadHandle) -> None:
        """Renew a reader's lease no longer."""
        with self._readers_lock:
            self._readers.discard(reader)

    def deadline(self, timeout: float | None) -> Deadline:
        """The end of a call that starts now."""
        return self.context.deadline(timeout)

    def check(self, schema: pa.Schema | None, key: KeySpec | None) -> None:
        """Compare the shard with what a program takes it to be.

        Raises:
            SchemaMismatch: they differ.
        """
        if schema is not None and not self.schema.equals(schema):
            raise SchemaMismatch(
                f"shard {self.shard_id} has another schema than the one it is opened with",
                detail=f"The shard has ({_shown(self.schema)}), the program has ({_shown(schema)}).",
            )
        if schema is not None and key != self.key:
            raise SchemaMismatch(
                f"shard {self.shard_id} has another key than the one it is opened with",
                detail=f"The shard has {self.key}, the program has {key}.",
            )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
