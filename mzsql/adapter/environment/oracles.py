"""The timestamp oracles of an environment: that of tables, whose implementation a setting chooses, and that of the
catalog.

Promise: every process follows the setting ``timestamp_oracle`` at its next statement, and timestamps continue above all
that were handed out before (`mzsql.oracle.switching`). The catalog's oracle is opened when DDL first needs a timestamp:
a process that only reads and writes never asks it. That reads see the current catalog is ensured by the catalog's
shard, not by this oracle.
"""

from __future__ import annotations

import threading
from typing import cast

from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.environment.locations import Locations
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.settings import TIMESTAMP_ORACLE, WAY_BACK, system_value
from mzsql.catalog.state import CatalogState
from mzsql.location import Consensus, TimestampOracle
from mzsql.oracle import (
    CATALOG,
    EPOCH_MS,
    BoundedClock,
    SkewGuard,
    SwitchingOracle,
    Wish,
    open_oracle,
    open_switching_oracle,
)
from mzsql.oracle.reservation import Implementation
from mzsql.persist import Clock


def wish_of(state: CatalogState) -> Wish:
    """The oracle settings in a catalog state: the implementation, and the number of times it was changed."""
    implementation = system_value(state.settings, TIMESTAMP_ORACLE)
    return Wish(
        cast("Implementation", implementation),
        system_value(state.settings, WAY_BACK) == "on",
        state.counters.get(TIMESTAMP_ORACLE, 0),
    )


class Setting:
    """The oracle settings as last seen. Kept apart from the catalog, whose lock is held while another thread reads the
    shard.
    """

    def __init__(self, catalog: DurableCatalog) -> None:
        self._catalog = catalog
        self.wish = wish_of(catalog.state)

    def see(self, state: CatalogState) -> None:
        """Take over the settings of a catalog state, unless they are older than those known."""
        wish = wish_of(state)
        if wish.step >= self.wish.step:
            self.wish = wish

    def ask(self) -> Wish:
        """The settings after reading the catalog's shard."""
        self.see(self._catalog.sync())
        return self.wish


class TableOracle(SkewGuard):
    """The oracle of tables: guarded against fast clocks, over the implementation that the setting names.

    Args:
        switching: follows the setting.
        clock: the wall clock in milliseconds that it was opened with.
        setting: the settings as last seen.
    """

    def __init__(self, switching: SwitchingOracle, clock: BoundedClock, setting: Setting) -> None:
        super().__init__(switching, clock)
        self._switching = switching
        self._setting = setting

    def see(self, state: CatalogState) -> None:
        """Follow the settings of a catalog state from the next operation on."""
        self._setting.see(state)

    @property
    def alone(self) -> bool:
        """Whether timestamps are served from this process's memory."""
        return self._switching.alone

    @property
    def due(self) -> bool:
        """Whether the next operation would switch implementations, or fail; background work then waits for a statement
        to do so.
        """
        return self._switching.due

    @property
    def term(self) -> int:
        """The current term, for `confirm_leadership`; to be read before a statement's first timestamp."""
        return self._switching.term

    def confirm_leadership(self, term: int | None = None) -> None:
        """As `SwitchingOracle.confirm_leadership`; to be called before results read at timestamps of ``term`` are
        returned.
        """
        self._switching.confirm_leadership(term)

    def adopt(self, ts: int) -> None:
        """Apply a write at ``ts`` that is already in the log, whoever allocated the timestamp and whatever the clock
        says.
        """
        self._switching.apply_write(ts)
        self._clock.adopt(ts)


def open_table_oracle(
    locations: Locations,
    consensus: Consensus,
    catalog: DurableCatalog,
    environment_id: str,
    clock: Clock,
    *,
    read_only: bool,
) -> TableOracle:
    """Open the oracle of an environment's tables; the caller closes it."""
    setting = Setting(catalog)
    now = BoundedClock(clock.now_ms, monotonic=clock.monotonic)
    switching = open_switching_oracle(
        locations.oracle,
        consensus,
        environment_id,
        this_process(),
        wish=lambda: setting.wish,
        ask=setting.ask,
        timeline=EPOCH_MS,
        now=now,
        read_only=read_only,
    )
    return TableOracle(switching, now, setting)


class CatalogOracle:
    """Timestamps of DDL: strictly increasing over all processes. Opened at first use. Thread-safe.

    Args:
        url: where the environment's oracle is.
        clock: the wall clock and the monotonic one.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: TimestampOracle | None = None

    def ddl_timestamp(self) -> int:
        """A timestamp in milliseconds, later than every one before it in any process.

        Raises:
            ClockSkew: this machine's clock is too fast.
        """
        with self._lock:
            if self._opened is None:
                self._opened = open_oracle(
                    self._url, CATALOG, self._clock.now_ms, monotonic=self._clock.monotonic
                )
            opened = self._opened
        return opened.write_ts()

    def close(self) -> None:
        """Close it if it is open. Idempotent."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class BelievedClock:
    """A clock with a table oracle's `present_ms` as its wall time, which trusts this machine's clock only as far as others confirm it.

    Attributes:
        oracle: the oracle; another one once a deploy generation was promoted.
    """

    def __init__(self, clock: Clock, oracle: TableOracle) -> None:
        self.oracle = oracle
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.oracle.present_ms()
