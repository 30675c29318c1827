"""What a client tells of the shards of its location.

Promise: nothing here changes a shard, takes a lease, or deletes anything: whoever looks is noticed by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from mzsql.persist.arguments import check_shard_id
from mzsql.persist.checked import checked
from mzsql.persist.clock import Clock
from mzsql.persist.context import Context
from mzsql.persist.deciding import holders
from mzsql.persist.errors import ExpiredHandle, Holder
from mzsql.persist.inspection import (
    ShardReport,
    StrangersReport,
    find_strangers,
    inspect_location,
    inspect_shard,
    peek,
)
from mzsql.persist.machine import Shard
from mzsql.persist.metrics import metered
from mzsql.persist.opened import OpenShards
from mzsql.persist.settings import Settings
from mzsql.persist.state import ShardState
from mzsql.persist.watch import lapsed


@checked
class Inspector:
    """Tells of all shards of one persist location.

    Args:
        context: the backends, and how they are used.
        shards: those that are open in this process, whose states are told as they are known here.
    """

    def __init__(self, context: Context, shards: OpenShards) -> None:
        self._context = context
        self._shards = shards
        self._closed = False

    @property
    def settings(self) -> Settings:
        """The client's settings."""
        return self._context.settings

    @property
    def blob_url(self) -> str | None:
        """Where other processes open its Blob store; `None` when it was not opened by URL. It may hold a secret."""
        return self._context.blob_url

    @property
    def version(self) -> str:
        """The program's version, as the shards that it changes remember it."""
        return self._context.version

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._context.clock

    def _check_open(self) -> None:
        if self._closed:
            raise ExpiredHandle(
                "the persist client is closed", hint="Open another one, or close it later."
            )

    @metered("exists")
    def exists(self, shard_id: str, *, timeout: float | None = None) -> bool:
        """Whether the shard was ever made; a finalized one was."""
        check_shard_id(shard_id)
        context = self._context
        head = context.retrying(lambda: context.consensus.head(shard_id), context.deadline(timeout))
        return head is not None

    @metered("inspect")
    def inspect(self, shard_id: str, *, timeout: float | None = None) -> ShardState | None:
        """The shard's whole current state, or `None` when it does not exist."""
        check_shard_id(shard_id)
        opened = self._shards.get(shard_id)
        shard = Shard(shard_id, self._context) if opened is None else opened.shard
        return shard.fetch(self._context.deadline(timeout))

    def holders(self, shard_id: str) -> tuple[Holder, ...]:
        """Who holds the shard's since, as this client has seen it last; nobody where it has not opened it. Reads nothing."""
        opened = self._shards.get(shard_id)
        return () if opened is None else tuple(holders(opened.shard.state))

    @metered("report")
    def report(self, shard_id: str, *, timeout: float | None = None) -> ShardReport | None:
        """Everything there is to see of the shard, with its monthly cost, or `None` when it does not exist. Changes nothing.

        Raises:
            NewerVersion, CorruptPart, MissingPart: its state cannot be read.
        """
        check_shard_id(shard_id)
        self._check_open()
        return inspect_shard(self._context, shard_id, self._context.deadline(timeout))

    def reports(
        self, *, timeout: float | None = None
    ) -> Iterator[tuple[str, ShardReport | Exception]]:
        """Every shard of the location with its `report`, or with the error that kept it from being read. Changes nothing."""
        self._check_open()
        return inspect_location(self._context, lambda: self._context.deadline(timeout))

    def strangers(self) -> list[StrangersReport]:
        """Objects in Blob under prefixes that are no shards of this Consensus, summed up by prefix. Changes nothing."""
        self._check_open()
        return find_strangers(self._context, frozenset(self._context.consensus.list_keys()))

    @metered("peek")
    def peek(self, shard_id: str, *, timeout: float | None = None) -> pa.Table | None:
        """The shard's contents at its latest complete time, read without a lease, so changing nothing; `None` without the shard.

        Raises:
            MissingPart: compaction took parts away faster than they could be read.
        """
        check_shard_id(shard_id)
        self._check_open()
        found = peek(self._context, shard_id, self._context.deadline(timeout))
        return None if found is None else found[1]

    def unchanged_ms(self, state: ShardState) -> int:
        """How long the state has been its shard's latest, as seen by this process."""
        return self._context.watch.unchanged_ms(state)

    def swept(self, state: ShardState) -> ShardState:
        """The state without the readers whose leases this process has seen run out."""
        gone = lapsed(state, self._context.watch.sightings(state))
        live = {i: reader for i, reader in state.readers.items() if i not in gone}
        return msgspec.structs.replace(state, readers=live)
