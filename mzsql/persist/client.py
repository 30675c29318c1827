"""The client: opens shards, keeps them tidy, and forgets them."""

from __future__ import annotations

import random

import pyarrow as pa

from mzsql.location import Blob, Consensus
from mzsql.persist.batch import KeySpec
from mzsql.persist.clock import Clock
from mzsql.persist.read import CriticalReader, ReadHandle
from mzsql.persist.settings import Settings
from mzsql.persist.write import WriteHandle
from mzsql.repr.errors import Unsupported


class PersistClient:
    """All shards of one persist location; share one per process. ``background``: compaction, collection and heartbeats on a thread
    of the client; else inline in the calls that make them due."""

    def __init__(
        self,
        blob: Blob,
        consensus: Consensus,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        settings: Settings | None = None,
        background: bool = True,
        blob_url: str | None = None,
    ) -> None:
        self.blob = blob
        self.consensus = consensus

    @classmethod
    def open(
        cls,
        *,
        blob: str,
        consensus: str,
        settings: Settings | None = None,
        background: bool = True,
    ) -> PersistClient:
        """A client of the backends at two URLs, which it closes."""
        raise Unsupported("")

    def new_shard_id(self) -> str:
        """A fresh shard id, "s" and a UUID."""
        raise Unsupported("")

    def open_shard(
        self,
        shard_id: str,
        schema: pa.Schema,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        timeout: float | None = None,
    ) -> tuple[WriteHandle, ReadHandle]:
        """Both handles of a shard, which is made if it is not there."""
        raise Unsupported("")

    def open_writer(
        self,
        shard_id: str,
        schema: pa.Schema | None = None,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        timeout: float | None = None,
    ) -> WriteHandle:
        """A writer; without schema the shard must be there. Costs nothing in Consensus until it writes."""
        raise Unsupported("")

    def open_reader(
        self,
        shard_id: str,
        schema: pa.Schema | None = None,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        timeout: float | None = None,
    ) -> ReadHandle:
        """A leased reader at the shard's since; without schema the shard must be there."""
        raise Unsupported("")

    def open_critical_reader(
        self,
        shard_id: str,
        reader_id: str,
        *,
        token: str = "",
        purpose: str = "",
        timeout: float | None = None,
    ) -> CriticalReader:
        """The hold named ``reader_id``, made at the shard's since if it is not there, taken over under ``token``."""
        raise Unsupported("")

    def exists(self, shard_id: str, *, timeout: float | None = None) -> bool:
        """Whether the shard was ever made (a finalized one was)."""
        raise Unsupported("")

    def maintain(self, shard_id: str, *, timeout: float | None = None) -> None:
        """Compact, roll up and collect what is due on the shard, now, in this thread."""
        raise Unsupported("")

    def finalize(self, shard_id: str, *, timeout: float | None = None) -> None:
        """Both frontiers become empty, whoever holds them; the shard's objects are deleted, a tombstone stays. Idempotent."""
        raise Unsupported("")

    def close(self) -> None:
        """Expire this client's handles, stop its thread, and close backends it opened. Idempotent."""
        raise Unsupported("")
