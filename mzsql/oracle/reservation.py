"""The durable log of a timeline: which process or implementation serves its timestamps, and the upper bound of those
served from memory.

Promise: a timeline has one log in the environment's Consensus store, empty as long as nobody served timestamps from
memory. Its newest entry names the implementation in use and its epoch. Each take-over is one compare_and_set, so of two
processes one wins, and the other notices by `newer`, a linearizable read of the log. No timestamp above an entry's
bound is handed out before a later entry. The trade-off: a process that writes appends an entry every few seconds; an
idle one appends none.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry

from mzsql.location import Consensus, LocationError, UsageError, Versioned, at_most
from mzsql.location.keys import ORACLE_KEYS
from mzsql.oracle.metrics import OracleMetrics

Implementation = Literal["distributed", "in-memory"]

_KEPT = 16
"""At least so many entries are kept; the log is truncated every so many."""
_RETRY_SECONDS = 30.0
_LONGEST_PAUSE = 1.0
_SCANNED = 64

_log = logging.getLogger(__name__)


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the log.

    Attributes:
        epoch: grows by one with each take-over and each switch.
        implementation: what serves the timestamps.
        token: unique for each take-over.
        who: the process, for messages.
        bound: no timestamp above it was handed out or applied from memory.
        step: the step of the setting that the process follows.
        read_ts, write_ts: the timestamps, where the process has stopped serving; None: they are in its memory.
    """

    epoch: int
    implementation: Implementation
    token: str
    who: str
    bound: int
    step: int = 0
    read_ts: int | None = None
    write_ts: int | None = None


class Ledger:
    """The log of one timeline, through one Consensus handle.

    Args:
        consensus: the environment's Consensus store; the caller closes it.
        timeline: the timeline's name.
        metrics: where the operations are counted.
    """

    def __init__(
        self, consensus: Consensus, timeline: str, metrics: OracleMetrics | None = None
    ) -> None:
        metrics = OracleMetrics(CollectorRegistry()) if metrics is None else metrics
        self._consensus = consensus
        self._opens = metrics.op(timeline, "open", queries=False)
        self._looks = metrics.op(timeline, "confirm_leadership", queries=False)
        self._reserves = metrics.op(timeline, "reserve", queries=False)
        self.key = f"{ORACLE_KEYS}{timeline}"

    def newest(self) -> tuple[int | None, Reservation | None]:
        """The newest entry, with its number; ``(None, None)`` for an empty log."""
        return self._opens.timed(self._newest)

    def _newest(self) -> tuple[int | None, Reservation | None]:
        # `head` may return an older entry; a scan is linearizable, and the log is short.
        found = self._after(-1)
        return (found[-1].seqno, _decoded(found[-1], self.key)) if found else (None, None)

    def _after(self, seqno: int) -> list[Versioned]:
        found: list[Versioned] = []
        while True:
            more = self._consensus.scan(self.key, seqno + 1, _SCANNED)
            found += more
            if len(more) < _SCANNED:
                return found
            seqno = more[-1].seqno

    def newer(self, seqno: int | None) -> list[tuple[int, Reservation]]:
        """Every entry after the one with this number (None: all)."""
        return self._looks.timed(lambda: self._newer(seqno))

    def _newer(self, seqno: int | None) -> list[tuple[int, Reservation]]:
        found = self._after(-1 if seqno is None else seqno)
        return [(one.seqno, _decoded(one, self.key)) for one in found]

    def append(self, seqno: int | None, entry: Reservation) -> int | None:
        """Append ``entry`` after the one with this number.

        Retried while Consensus fails, as long as the caller waits; an attempt whose outcome is unknown is recognized by
        its contents.

        Returns:
            The entry's number; None where another process was first.

        Raises:
            LocationError: Consensus cannot be reached.
        """
        return self._reserves.timed(lambda: self._append(seqno, entry))

    def _append(self, seqno: int | None, entry: Reservation) -> int | None:
        data = msgspec.json.encode(entry)
        number = 0 if seqno is None else seqno + 1
        end = time.monotonic() + at_most(_RETRY_SECONDS)
        longest = 0.02
        while True:
            try:
                won = self._consensus.compare_and_set(self.key, seqno, Versioned(number, data))
                if not won:
                    won = any(
                        one.seqno == number and one.data == data
                        for one in self._consensus.scan(self.key, number, 1)
                    )
            except LocationError:
                pause = random.uniform(0.0, longest)  # noqa: S311 - full jitter
                if time.monotonic() + pause >= end:
                    raise
                time.sleep(pause)
                longest = min(_LONGEST_PAUSE, longest * 2)
                continue
            if won and number % _KEPT == 0 and number:
                self._truncate(number)
            return number if won else None

    def _truncate(self, number: int) -> None:
        try:
            self._consensus.truncate(self.key, number - 1)
        except LocationError as failure:
            # Only space: the next truncation removes them.
            _log.info("the log of the timestamps is not truncated for now: %s", failure)


def _decoded(entry: Versioned, key: str) -> Reservation:
    try:
        return msgspec.json.decode(entry.data, type=Reservation)
    except msgspec.MsgspecError as broken:
        raise UsageError(
            f"entry {entry.seqno} of {key} in the Consensus store cannot be read ({broken})",
            hint="It was written by a newer mzsql, or by something else: upgrade, or use the environment's own Consensus store.",
        ) from None
