"""Mints timestamp bindings (`mzsql.storage.bindings`), centrally or when a reader of the source asks.

Promise: everything is minted by a compare_and_append on the bindings' shard, so any number of minters in any number
of processes agree: what one has bound the others find bound. Each call may be repeated after an error, and then
finds what it had done. Centrally: `BindingMinter.mint` binds what is available, and lets time pass if there is
nothing new. On request: `BindingMinter.get_binding` returns the binding that covers a source timestamp, or mints
one; without requests no time passes. Source: Materialize's persist design.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from mzsql.persist import (
    ExpiredHandle,
    InvalidBounds,
    PersistClient,
    ShardFinalized,
    UpperMismatch,
)
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.storage.bindings import BINDINGS_SCHEMA, Binding, BindingReader, BindingState, minted


class BindingMinter:
    """Mints the bindings of a source. Any number of processes may do so at once. Thread-safe.

    Args:
        persist: the client of the shards.
        shard_id: the shard of the bindings, created if it does not exist.
        now: returns the current time: a timestamp oracle's ``write_ts``, or a clock's ``now_ms``.
    """

    def __init__(
        self, persist: PersistClient, shard_id: str, *, now: Callable[[], Timestamp]
    ) -> None:
        self._bindings = BindingReader(persist, shard_id, purpose="minting of timestamp bindings")
        self._now = now
        self._lock = threading.Lock()
        self._writer = persist.open_writer(
            shard_id, BINDINGS_SCHEMA, purpose="minting of timestamp bindings"
        )

    def mint(self, high_watermarks: Mapping[str, int]) -> Frontier:
        """Bind everything up to ``high_watermarks`` that is not bound, at the current time. Bindings are complete below
        the returned frontier.

        Without anything new the time is declared complete all the same. Repeat it after an error: what was bound
        stays so.

        Args:
            high_watermarks: for each partition the greatest offset that can be read (inclusive: Kafka's high
                watermark minus one).

        Raises:
            InvalidBounds: it is not a source timestamp, or beyond those of a source that has ended.
            LocationError: a backend failed; something may have been minted.
        """
        with self._lock:
            wanted = _checked(high_watermarks)
            state = self._bindings.follow()
            return self._minted(state, wanted, self._now(), progress=True).upper

    def get_binding(self, partition: str, offset: int) -> Binding:
        """The binding that covers a source timestamp: the existing one, or a new one at the current time; always the
        same.

        Raises:
            InvalidBounds: it is not a source timestamp, or beyond those of a source that has ended.
            BindingCompacted: it was bound so long ago that its time is no longer known.
            LocationError: a backend failed; ask again.
        """
        return self.get_bindings({partition: offset})[partition]

    def get_bindings(self, source_ts: Mapping[str, int]) -> dict[str, Binding]:
        """As `get_binding`, for one offset of each of several partitions, in one append."""
        state = self._covering(source_ts)
        found = {}
        for partition, offset in source_ts.items():
            binding = state.find(partition, offset)
            assert binding is not None
            found[partition] = binding
        return found

    def cover(self, source_ts: Mapping[str, int]) -> Frontier:
        """Ensure that these source timestamps are bound, however long ago. Bindings are complete below the returned
        frontier.
        """
        return self._covering(source_ts).upper

    def _covering(self, source_ts: Mapping[str, int]) -> BindingState:
        with self._lock:
            wanted = _checked(source_ts)
            state = self._bindings.state
            if _missing(state, wanted):
                state = self._bindings.follow()
            if _missing(state, wanted):
                state = self._minted(state, wanted, self._now(), progress=False)
            return state

    def _minted(
        self, state: BindingState, wanted: Mapping[str, int], now: Timestamp, *, progress: bool
    ) -> BindingState:
        """The bindings once all that is ``wanted`` is bound and, with ``progress``, ``now`` is complete; what others
        mint first counts.
        """
        while state.upper is not None:
            if not _missing(state, wanted) and not (progress and now >= state.upper):
                return state
            # Times of bindings only grow, also where this machine's clock is behind the one that minted last.
            ts = max(now, state.upper)
            try:
                self._writer.compare_and_append(
                    minted(state, wanted, ts), expected_upper=state.upper, new_upper=ts + 1
                )
            except UpperMismatch:
                pass
            except ShardFinalized:
                raise
            except ExpiredHandle:
                self._writer = self._writer.reopened()
            state = self._bindings.follow()
        if _missing(state, wanted):
            raise InvalidBounds(
                f"shard {self._bindings.shard_id}: the source has ended, nothing more can be bound"
            )
        return state

    def finish(self) -> None:
        """Declare that the source has ended: no binding will ever be added. Idempotent."""
        with self._lock:
            while True:
                upper = self._writer.fetch_upper()
                if upper is None:
                    return
                try:
                    self._writer.compare_and_append(None, expected_upper=upper, new_upper=None)
                except UpperMismatch:
                    continue
                except ShardFinalized:
                    raise
                except ExpiredHandle:
                    self._writer = self._writer.reopened()

    def close(self) -> None:
        """Close the handles. Idempotent."""
        self._bindings.close()
        self._writer.expire()


def _missing(state: BindingState, wanted: Mapping[str, int]) -> bool:
    return any(offset > state.bound.get(partition, -1) for partition, offset in wanted.items())


def _checked(source_ts: Mapping[str, int]) -> Mapping[str, int]:
    for partition, offset in source_ts.items():
        whole = isinstance(offset, int) and not isinstance(offset, bool)
        if not isinstance(partition, str) or not whole or not 0 <= offset < 2**63:
            raise InvalidBounds(
                f"not a source timestamp: partition {partition!r}, offset {offset!r}",
                hint="A partition is text, an offset an integer of at least 0.",
            )
    return source_ts
