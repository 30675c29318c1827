"""What every timestamp oracle must do. Subclass `OracleContract` and say how to open yours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from mzsql.location import MAX_SEQNO, TimestampOracle, open_oracle
from mzsql.testing.contract import Contract

_MAX_TS = MAX_SEQNO - 1


class OracleContract(Contract):
    """The cases of a timestamp oracle."""

    def open_oracle(self, place: Path, timeline: str, now: Callable[[], int]) -> TimestampOracle:
        """A handle; two handles of one place and timeline share their timestamps. Opens `url` through the installed plugins."""
        return open_oracle(self.url(place), timeline, now)

    def test_fresh(self, tmp_path: Path) -> None:
        """A new timeline reads at 0 and allocates by the clock."""
        oracle = self.open_oracle(tmp_path, "t", lambda: 100)
        assert oracle.read_ts() == 0
        assert oracle.peek_write_ts() == 0
        assert oracle.write_ts() == 100
        assert oracle.peek_write_ts() == 100
        assert oracle.read_ts() == 0

    def test_frozen_clock(self, tmp_path: Path) -> None:
        """Allocations strictly increase even when the clock stands still or runs back."""
        clock = [50]
        oracle = self.open_oracle(tmp_path, "t", lambda: clock[0])
        assert [oracle.write_ts() for _ in range(3)] == [50, 51, 52]
        clock[0] = 10
        assert oracle.write_ts() == 53
        clock[0] = 80
        assert oracle.write_ts() == 80

    def test_peek_allocates_nothing(self, tmp_path: Path) -> None:
        """Peeking does not advance."""
        oracle = self.open_oracle(tmp_path, "t", lambda: 5)
        oracle.write_ts()
        assert [oracle.peek_write_ts() for _ in range(3)] == [5, 5, 5]

    def test_apply_below_between_above(self, tmp_path: Path) -> None:
        """Applying below read changes nothing, between raises read only, above raises both."""
        oracle = self.open_oracle(tmp_path, "t", lambda: 0)
        oracle.apply_write(10)
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (10, 10)
        oracle.apply_write(4)
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (10, 10)
        assert [oracle.write_ts() for _ in range(5)] == [11, 12, 13, 14, 15]
        oracle.apply_write(12)
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (12, 15)
        oracle.apply_write(20)
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (20, 20)
        assert oracle.write_ts() == 21

    def test_end_of_time(self, tmp_path: Path) -> None:
        """The greatest timestamps can be allocated and applied."""
        oracle = self.open_oracle(tmp_path, "t", lambda: _MAX_TS - 1)
        assert oracle.write_ts() == _MAX_TS - 1
        assert oracle.read_ts() == 0
        oracle.apply_write(_MAX_TS)
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (_MAX_TS, _MAX_TS)

    def test_timelines_are_apart(self, tmp_path: Path) -> None:
        """Timelines do not touch each other."""
        one = self.open_oracle(tmp_path, "one", lambda: 7)
        two = self.open_oracle(tmp_path, "two", lambda: 3)
        one.apply_write(one.write_ts())
        assert (two.read_ts(), two.write_ts(), one.read_ts()) == (0, 3, 7)

    def test_reopened(self, tmp_path: Path) -> None:
        """A second handle goes on where the first is, whatever its clock says."""
        first = self.open_oracle(tmp_path, "t", lambda: 1000)
        first.apply_write(first.write_ts())
        second = self.open_oracle(tmp_path, "t", lambda: 1)
        assert second.read_ts() == 1000
        assert second.write_ts() == 1001
        assert first.peek_write_ts() == 1001

    def test_linearizable(self, tmp_path: Path) -> None:
        """Between threads: allocations are distinct, and a read is never below a write applied before it began."""
        handles = [self.open_oracle(tmp_path, "t", lambda: 0) for _ in range(2)]
        allocated: list[int] = []
        violations: list[str] = []
        lock = threading.Lock()
        applied = [0]

        def write(oracle: TimestampOracle) -> None:
            for _ in range(25):
                ts = oracle.write_ts()
                oracle.apply_write(ts)
                with lock:
                    allocated.append(ts)
                    applied[0] = max(applied[0], ts)

        def read(oracle: TimestampOracle) -> None:
            last = 0
            for _ in range(50):
                with lock:
                    floor = max(last, applied[0])
                ts = oracle.read_ts()
                if ts < floor:
                    violations.append(f"read {ts} after {floor}")
                last = ts
                if oracle.write_ts() <= ts:
                    violations.append(f"allocated at or below the read {ts}")

        threads = [threading.Thread(target=write, args=(h,)) for h in handles]
        threads += [threading.Thread(target=read, args=(h,)) for h in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert violations == []
        assert len(set(allocated)) == len(allocated) == 50
