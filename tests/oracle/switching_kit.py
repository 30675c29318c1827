"""Several processes on one environment, as far as timestamps go: catalog, log of writes, oracles; what a statement does with them."""

from __future__ import annotations

import threading

from mzsql.location.mem import MemConsensus, MemOracle, MemTimestamps
from mzsql.oracle import Ledger, Serving, SwitchingOracle, Wish


class Environment:
    """What all processes share; `upper` is the log's: no write commits below it."""

    def __init__(self):
        self.consensus = MemConsensus()
        self.timestamps = MemTimestamps()
        self.lock = threading.Lock()
        self.wish = Wish()
        self.upper = 0
        self.clock = 1_000_000

    def alter(self, implementation, *, way_back=False):
        with self.lock:
            self.wish = Wish(implementation, way_back, self.wish.step + 1)


class Process:
    """One process: its clock differs by ``skew`` ms, and it sees the catalog as of its last statement's start."""

    def __init__(self, env, name="p", skew=0):
        self.env = env
        self.skew = skew
        self.seen = env.wish
        self.known_upper = 0
        self.oracle = SwitchingOracle(
            MemOracle(self.now, timestamps=env.timestamps),
            Ledger(env.consensus, "t"),
            "e/t",
            self.now,
            name,
            wish=lambda: self.seen,
            ask=self.sync,
            serving=Serving(),
        )

    def now(self):
        return max(0, self.env.clock + self.skew)

    def sync(self):
        """What each statement begins with."""
        self.seen = self.env.wish
        return self.seen

    def fresh_timestamp(self):
        """As the adapter's environment does it."""
        ts = self.oracle.read_ts()
        alone = self.oracle.alone
        if alone or self.known_upper <= ts:
            self.known_upper = self.env.upper
        if alone and self.known_upper - 1 > ts:
            self.oracle.apply_write(self.known_upper - 1)
            ts = self.known_upper - 1
        return max(0, min(ts, self.known_upper - 1))

    def commit(self, ts):
        """Append to the log, at ``ts`` or later where the log is further; at which."""
        while True:
            upper = self.env.upper
            if ts < upper:
                self.oracle.apply_write(upper - 1)
                ts = self.oracle.write_ts()
                continue
            with self.env.lock:
                if ts < self.env.upper:
                    continue
                self.env.upper = self.known_upper = ts + 1
                return ts
