"""What a worker of Spark keeps open: one environment is opened once, and nobody waits for another one's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.reader import open_read_only
from mzsql.spark import opened
from mzsql.spark.opened import _Kept

WAIT = 30.0


class One:
    """Something that takes long to open."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_what_is_slow_to_open_keeps_nobody_waiting_who_wants_another() -> None:
    begun, go_on = threading.Event(), threading.Event()
    made: list[str] = []

    def make(where: tuple[tuple[str, str], ...]) -> One:
        name = where[0][1]
        made.append(name)
        if name == "slow":
            begun.set()
            assert go_on.wait(WAIT)
        return One()

    kept = _Kept(make)

    def used(name: str, found: list[One]) -> None:
        with kept.use((("env", name),)) as one:
            found.append(one)

    slow: list[One] = []
    threads = [threading.Thread(target=used, args=("slow", slow)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(WAIT)
    fast: list[One] = []
    for _ in range(2):
        used("fast", fast)
    assert fast[0] is fast[1]
    assert not slow
    go_on.set()
    for thread in threads:
        thread.join(WAIT)
    assert len({id(one) for one in slow}) == 1
    assert sorted(made) == ["fast", "slow"]
    kept.close()
    assert slow[0].closed
    assert fast[0].closed


def test_what_cannot_be_opened_is_tried_by_the_next_who_asks() -> None:
    tries: list[int] = []

    def make(_: tuple[tuple[str, str], ...]) -> One:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not there yet")
        return One()

    kept = _Kept(make)
    with pytest.raises(OSError, match="not there yet"), kept.use((("env", "a"),)):
        pass
    with kept.use((("env", "a"),)) as one:
        assert not one.closed
    assert len(tries) == 2


def test_one_that_is_old_is_opened_anew_and_closed_when_nobody_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = _Kept(lambda _: One())
    where = (("env", "a"),)
    with kept.use(where) as first:
        pass
    monkeypatch.setattr(opened, "MOST_SECONDS", 0.0)
    with kept.use(where) as second:
        assert second is not first
        assert first.closed
        with kept.use(where) as third:
            assert third is not second
            assert not second.closed
        # One more that uses the old one, or the new one, is in nobody's way.
        monkeypatch.setattr(opened, "MOST_SECONDS", 60.0)
        with kept.use(where) as fourth:
            assert fourth is third
        assert not second.closed
        assert not third.closed
    assert second.closed
    kept.close()
    assert third.closed


def test_what_is_old_is_closed_by_the_last_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = _Kept(lambda _: One())
    where = (("env", "a"),)
    with kept.use(where) as one:
        with kept.use(where) as same:
            assert same is one
            monkeypatch.setattr(opened, "MOST_SECONDS", 0.0)
            with kept.use(where) as newer:
                assert newer is not one
            monkeypatch.setattr(opened, "MOST_SECONDS", 60.0)
        assert not one.closed
        with kept.use(where) as again:
            assert again is newer
    assert one.closed
    kept.close()
    assert newer.closed


def test_a_dropped_relation_is_not_kept_by_a_hold_that_goes_by_a_name(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path) as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        with open_read_only(path=str(tmp_path)) as reader:
            relation = reader.relation("t")
            reader.durable_hold(relation, "spark-stream-x", "a Spark stream of t")
            shard = reader._env.collections.meta(relation.id).shard
        persist = con._shared.env.persist
        held = persist.inspect(shard)
        assert held is not None
        assert "spark-stream-x" in held.critical
        con.execute("DROP TABLE t")
        state = persist.inspect(shard)
        assert state is None or "spark-stream-x" not in state.critical
