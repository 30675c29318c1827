"""What a client can report about the shards of its location.

Promise: nothing here changes a shard, takes a lease, or deletes anything: other processes do not notice it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from mzsql.location.keys import shard_keys
from mzsql.persist.arguments import check_shard_id
from mzsql.persist.batch import KeySpec
from mzsql.persist.checked import checked
from mzsql.persist.clock import Clock
from mzsql.persist.columns import decode_schema
from mzsql.persist.context import Context
from mzsql.persist.deciding import holders
from mzsql.persist.errors import ExpiredHandle, Holder, MissingPart
from mzsql.persist.fetch import PartReader
from mzsql.persist.logs import states_of
from mzsql.persist.machine import Shard
from mzsql.persist.metrics import metered
from mzsql.persist.opened import OpenShards
from mzsql.persist.pushdown import Filters, Pushdown, lookups_of
from mzsql.persist.settings import Settings
from mzsql.persist.shard_reports import (
    OrphansReport,
    ShardReport,
    find_orphans,
    inspect_location,
    inspect_shard,
    peek,
)
from mzsql.persist.state import ShardState
from mzsql.persist.stats import Lookup
from mzsql.persist.watch import lapsed


@checked
class Inspector:
    """Reports on all shards of one persist location.

    Args:
        context: the backends, and how they are called.
        shards: the shards that are open in this process, whose known states are used.
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
        """The URL at which other processes open its Blob store; `None` if it was not opened by URL. May contain a
        secret.
        """
        return self._context.blob_url

    @property
    def version(self) -> str:
        """The program's version, which is recorded in the shards it changes."""
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
        """Whether the shard was ever made; true for one that has ended."""
        check_shard_id(shard_id)
        context = self._context
        head = context.retrying(lambda: context.consensus.head(shard_id), context.deadline(timeout))
        return head is not None

    @metered("shard_ids")
    def shard_ids(self, *, timeout: float | None = None) -> frozenset[str]:
        """The ids of all shards that were ever made in the location, those that have ended included; one request.

        Raises:
            LocationError: Consensus cannot be asked.
        """
        self._check_open()
        context = self._context
        keys = context.retrying(
            lambda: list(context.consensus.list_keys()), context.deadline(timeout)
        )
        return frozenset(shard_keys(keys))

    @metered("inspect")
    def inspect(self, shard_id: str, *, timeout: float | None = None) -> ShardState | None:
        """Return the shard's whole current state; `None` if it does not exist."""
        check_shard_id(shard_id)
        opened = self._shards.get(shard_id)
        shard = Shard(shard_id, self._context) if opened is None else opened.shard
        return shard.fetch(self._context.deadline(timeout))

    @metered("inspect")
    def inspect_many(
        self, shard_ids: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, ShardState]:
        """As `inspect`, for each of ``shard_ids`` (all shards by default) that exists: with one request for some hundred of them where the
        Consensus can.

        Raises:
            LocationError: a store cannot be asked.
            NewerVersion, CorruptPart, MissingPart: a state cannot be read.
        """
        self._check_open()
        deadline = self._context.deadline(timeout)
        wanted = sorted(self.shard_ids(timeout=timeout)) if shard_ids is None else shard_ids
        opened = {one: found.shard for one in wanted if (found := self._shards.get(one))}
        known = {one: shard.state for one, shard in opened.items()}

        def alone(shard_id: str) -> ShardState | None:
            return (opened.get(shard_id) or Shard(shard_id, self._context)).fetch(deadline)

        return dict(states_of(self._context, known, wanted, alone, deadline))

    def holders(self, shard_id: str) -> tuple[Holder, ...]:
        """Return who holds the shard's since, as this client has last seen it; nobody if it has not opened the shard.
        Without a request.
        """
        opened = self._shards.get(shard_id)
        return () if opened is None else tuple(holders(opened.shard.state))

    @metered("report")
    def report(self, shard_id: str, *, timeout: float | None = None) -> ShardReport | None:
        """Return all there is to see of the shard, with its monthly cost; `None` if it does not exist. Changes nothing.

        Raises:
            NewerVersion, CorruptPart, MissingPart: its state cannot be read.
        """
        check_shard_id(shard_id)
        self._check_open()
        return inspect_shard(self._context, shard_id, self._context.deadline(timeout))

    def reports(
        self, *, timeout: float | None = None
    ) -> Iterator[tuple[str, ShardReport | Exception]]:
        """Yield every shard of the location with its `report`, or with the error that kept it from being read. Changes
        nothing.
        """
        self._check_open()
        return inspect_location(self._context, lambda: self._context.deadline(timeout))

    def orphans(self) -> list[OrphansReport]:
        """Return the objects in Blob whose prefixes are not shards of this Consensus, summed up by prefix. Changes
        nothing.
        """
        self._check_open()
        return find_orphans(self._context, frozenset(self._context.consensus.list_keys()))

    @metered("peek")
    def peek(self, shard_id: str, *, timeout: float | None = None) -> pa.Table | None:
        """Return the shard's contents at its latest complete time, read without a lease, so without any change; `None`
        if it does not exist.

        Raises:
            MissingPart: compaction removed parts faster than they could be read.
        """
        check_shard_id(shard_id)
        self._check_open()
        found = peek(self._context, shard_id, self._context.deadline(timeout))
        return None if found is None else found[1]

    @metered("peek")
    def updates(
        self,
        shard_id: str,
        state: ShardState,
        columns: Sequence[str],
        *,
        filters: Filters | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the updates that a state of the shard, from `inspect`, has of the rows which pass the filters:
        ``columns``, ``mz_time``, ``mz_diff``, not consolidated. Takes no lease.

        Raises:
            MissingPart: compaction has removed a part meanwhile.
        """
        check_shard_id(shard_id)
        self._check_open()
        deadline = self._context.deadline(timeout)
        schema = decode_schema(state.schema)
        lookups = lookups_of(schema, state.key, filters, f"shard {shard_id}")
        reader = PartReader(self._context, shard_id, schema)
        found = [
            reader.read(part, deadline, columns=columns, pushdown=Pushdown(lookups))
            for batch in state.trace
            for part in batch.parts
        ]
        return pa.concat_tables([reader.read_schema(columns).empty_table(), *found])

    @metered("peek")
    def tallies(
        self,
        states: Mapping[str, ShardState],
        filters: Filters,
        *,
        timeout: float | None = None,
    ) -> dict[str, int]:
        """Return for each of the ``states``, from `inspect_many`, the sum of the diffs of its updates that pass the filters. Takes no
        lease: shards of which compaction has removed a part meanwhile are left out.

        Raises:
            SchemaMismatch: the filters do not fit a shard.
            CorruptPart: a part cannot be read.
            LocationError: Blob did not answer in time.
        """
        self._check_open()
        deadline = self._context.deadline(timeout)
        prepared: dict[tuple[bytes, KeySpec | None], tuple[Lookup, ...]] = {}
        found: dict[str, int] = {}
        for shard_id, state in states.items():
            schema, form = decode_schema(state.schema), (state.schema, state.key)
            if form not in prepared:
                prepared[form] = lookups_of(schema, state.key, filters, f"shard {shard_id}")
            reader = PartReader(self._context, shard_id, schema)
            parts = [part for batch in state.trace for part in batch.parts]
            try:
                found[shard_id] = sum(
                    reader.sum_of(part, prepared[form], deadline) for part in parts
                )
            except MissingPart:
                continue
        return found

    def unchanged_ms(self, state: ShardState) -> int:
        """Return for how long this process has seen ``state`` as its shard's latest, in milliseconds."""
        return self._context.watch.unchanged_ms(state)

    def swept(self, state: ShardState) -> ShardState:
        """Return the state without the readers whose leases this process has seen run out."""
        gone = lapsed(state, self._context.watch.sightings(state))
        live = {i: reader for i, reader in state.readers.items() if i not in gone}
        return msgspec.structs.replace(state, readers=live)
