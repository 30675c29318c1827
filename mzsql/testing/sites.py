"""The sites of the three kinds of backend: how a case opens handles of its own piece of the store, and what is removed afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mzsql.location import Blob, Consensus, TimestampOracle
from mzsql.testing.contract import Site
from mzsql.testing.prefixed import prefixed_blob, prefixed_consensus

PREFIX = "mzsql-kit-"
"""With which the name of everything begins that the kit makes in a store."""


def fresh_prefix() -> str:
    """A prefix nobody has used: ``mzsql-kit-<uuid>/``."""
    return f"{PREFIX}{uuid.uuid4()}/"


class BlobSite(Site):
    """Objects below one prefix."""

    def __init__(self, opener: Callable[[], Blob], **rest: Any) -> None:
        super().__init__(**rest)
        self._opener = opener

    def open(self) -> Blob:
        """A handle of its own."""
        blob = prefixed_blob(self._opener(), self.prefix)
        self._track(blob)
        return blob

    def clean_up(self) -> None:
        """Remove every object below the prefix; at the root of a fresh store nothing, as that goes by itself."""
        if self.prefix:
            blob = self.open()
            keys = [key for key, _ in blob.list_keys_and_metadata("")]
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(blob.delete, keys))


class ConsensusSite(Site):
    """Logs whose keys start with one prefix."""

    def __init__(self, opener: Callable[[], Consensus], **rest: Any) -> None:
        super().__init__(**rest)
        self._opener = opener

    def open(self) -> Consensus:
        """A handle of its own."""
        consensus = prefixed_consensus(self._opener(), self.prefix)
        self._track(consensus)
        return consensus

    def clean_up(self) -> None:
        """Truncate every log to its newest entry, which no Consensus removes: so much of a case stays in the store."""
        if self.prefix:
            consensus = self.open()
            for key in list(consensus.list_keys()):
                head = consensus.head(key)
                if head is not None:
                    consensus.truncate(key, head.seqno)


class OracleSite(Site):
    """Timelines whose names start with one prefix; their rows stay in the store, as no oracle removes them."""

    def __init__(
        self, opener: Callable[[str, Callable[[], int]], TimestampOracle], **rest: Any
    ) -> None:
        super().__init__(**rest)
        self._opener = opener

    def open(self, now: Callable[[], int], timeline: str = "t") -> TimestampOracle:
        """A handle of its own; ``now`` is its clock in milliseconds."""
        oracle = self._opener(self.prefix + timeline, now)
        self._track(oracle)
        return oracle
