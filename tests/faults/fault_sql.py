"""SQL sessions that insert and select over failing backends.

Two sessions, each with an environment of its own as two processes have, insert rows that nobody else has, every other one too long to
travel inline; a third, of the first environment, reads the table. Whatever a statement answers, an acknowledged row is there once
in every later answer, and a row whose statement failed at most once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial

from fault_ledger import Ledger
from fault_place import BACKEND_SECONDS, Place

import mzsql
from mzsql.location import Determinate

STATEMENT = 60.0
"""Seconds that a statement may take by default."""
BOUND = STATEMENT + BACKEND_SECONDS
Key = tuple[str, int]


class SqlLoad:
    """The workload."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self._place = place
        self._ledger = ledger
        self._lock = threading.Lock()
        self.acknowledged: set[Key] = set()
        self.refused: set[Key] = set()
        self.doubtful: set[Key] = set()
        self._next: Counter[str] = Counter()
        self._sessions = {
            name: self._connect(place.consensus + option) for name, option in _SESSIONS
        }
        self._sessions["a"].execute("CREATE TABLE t (w text, n int, pad text)")

    def _connect(self, consensus: str) -> mzsql.Connection:
        return mzsql.connect(blob=self._place.blob, consensus=consensus, oracle=consensus)

    def start(self) -> None:
        """Begin."""
        for name in "ab":
            self._ledger.run(f"session {name}", partial(self._insert, name))
        self._ledger.run("session c", self._select)

    def loops(self) -> list[str]:
        """The calls that each loop has to get done to be well."""
        return ["INSERT a", "INSERT b", "SELECT"]

    def _insert(self, name: str) -> None:
        self._next[name] += 1
        key = (name, self._next[name])
        pad = "x" if key[1] % 2 else "y" * 100_000
        session = self._sessions[name]
        outcome = self._ledger.call(
            f"INSERT {name}",
            BOUND,
            lambda: session.execute("INSERT INTO t VALUES (%s, %s, %s)", (*key, pad)),
        )
        with self._lock:
            if outcome.ok:
                self.acknowledged.add(key)
            elif isinstance(outcome.error, Determinate):
                self.refused.add(key)
            else:
                self.doubtful.add(key)
        time.sleep(0.08)

    def _select(self) -> None:
        with self._lock:
            before = set(self.acknowledged)
        session = self._sessions["c"]
        outcome = self._ledger.call(
            "SELECT", BOUND, lambda: session.execute("SELECT w, n FROM t").fetchall()
        )
        if outcome.ok:
            self._check(before, Counter((w, n) for w, n in outcome.get()))
        time.sleep(0.08)

    def _check(self, before: set[Key], found: Counter[Key]) -> None:
        lost = before - found.keys()
        assert not lost, f"acknowledged and lost: {sorted(lost)}"
        doubled = {key for key, count in found.items() if count != 1}
        assert not doubled, f"there more than once: {sorted(doubled)}"

    def judge(self) -> None:
        """A session of its own, and those that were there, see the same."""
        with mzsql.connect(
            blob=self._place.direct_blob,
            consensus=self._place.direct_consensus,
            oracle=self._place.direct_consensus,
        ) as judge:
            answers = [
                Counter((w, n) for w, n in session.execute("SELECT w, n FROM t").fetchall())
                for session in (judge, *self._sessions.values())
            ]
        assert all(answer == answers[0] for answer in answers)
        self._check(self.acknowledged, answers[0])
        strangers = answers[0].keys() - self.acknowledged - self.doubtful
        assert not strangers, f"written by nobody: {sorted(strangers)}"

    def close(self) -> None:
        """Close the sessions."""
        for session in self._sessions.values():
            session.close()


_SESSIONS = (("a", ""), ("b", "&keepalives_idle=31"), ("c", ""))
"""The sessions, and what makes the URL of the second another one, so that it has an environment of its own."""
