"""The supervisor: what fails is begun anew, shown and counted; what ends for good says so; nothing waits by the machine's clock."""

from __future__ import annotations

import logging
import random
import threading

import pytest
from prometheus_client import CollectorRegistry

from mzsql.repr.errors import Fenced, SqlError, ThreadFailed
from mzsql.threads import Backoff, Supervised, Supervisor

HANG = 30.0
AT_ONCE = Backoff(first=0.0, most=0.0)


class Ticking:
    """A clock that is a second later each time it is asked."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        self.ms += 1000
        return self.ms


def _supervisor(registry: CollectorRegistry | None = None) -> Supervisor:
    return Supervisor(
        clock=Ticking(),
        rng=random.Random(7),
        backoff=AT_ONCE,
        registry=registry or CollectorRegistry(),
    )


def test_pauses_double_up_to_a_bound_and_chance_takes_at_most_half() -> None:
    backoff, rng = Backoff(first=0.5, most=4.0), random.Random(3)
    spans = (0.5, 1.0, 2.0, 4.0, 4.0, 4.0)
    drawn = [[backoff.pause(n, rng) for _ in range(200)] for n in (1, 2, 3, 4, 5, 5000)]
    for pauses, span in zip(drawn, spans, strict=True):
        assert span / 2 <= min(pauses) < 0.55 * span
        assert 0.95 * span < max(pauses) <= span


def test_work_that_fails_is_begun_anew_shown_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mzsql.threads")
    registry = CollectorRegistry()
    supervisor = _supervisor(registry)
    heal, healed, told = threading.Event(), threading.Event(), []

    def work(thread: Supervised) -> None:
        if not heal.is_set():
            raise RuntimeError("planted")
        thread.well()
        healed.set()
        while not thread.wait(HANG):
            pass

    thread = supervisor.start(
        "worker", work, thread_name="w", object_id="u1", changed=lambda s: told.append(s.status)
    )
    assert supervisor.wait_for(lambda all_: all_[0].restarts > 3, HANG)
    (status,) = supervisor.statuses()
    assert (status.name, status.object_id, status.status) == ("worker", "u1", "restarting")
    assert status.error == "internal error: RuntimeError: planted"
    assert registry.get_sample_value("mzsql_threads", {"thread": "worker", "status": "restarting"})
    heal.set()
    assert healed.wait(HANG)
    (status,) = supervisor.statuses()
    assert (status.status, status.error) == ("running", None)
    assert (
        registry.get_sample_value("mzsql_thread_restarts_total", {"thread": "worker"})
        == status.restarts
        >= 4
    )
    assert told == ["restarting", "running"]
    # Once for each change, however often it failed.
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    thread.stop()
    thread.join()
    assert not supervisor.statuses()
    assert not registry.get_sample_value("mzsql_threads", {"thread": "worker", "status": "running"})


@pytest.mark.parametrize("end", [SystemExit("planted"), Fenced("by a newer one")])
def test_what_ends_for_good_stays_in_sight_and_says_so(end: BaseException) -> None:
    supervisor = _supervisor()

    def work(_: Supervised) -> None:
        raise end

    thread = supervisor.start("worker", work, thread_name="w", for_good=(Fenced,))
    assert supervisor.wait_for(lambda all_: all_[0].status == "failed", HANG)
    with pytest.raises(ThreadFailed, match="the worker of this process has ended: ") as raised:
        thread.check("the worker")
    assert isinstance(raised.value, SqlError)
    assert raised.value.__cause__ is end
    thread.join()
    assert not supervisor.statuses()


def test_a_pause_ends_when_its_owner_closes() -> None:
    supervisor = Supervisor(backoff=Backoff(3600.0, 3600.0), registry=CollectorRegistry())
    begun = 0

    def work(_: Supervised) -> None:
        nonlocal begun
        begun += 1
        raise RuntimeError("planted")

    stopped, finished = (supervisor.start("worker", work, thread_name="w") for _ in range(2))
    assert supervisor.wait_for(lambda all_: all(s.error for s in all_), HANG)
    before = begun
    stopped.stop()
    stopped.join(HANG)
    assert not stopped.is_alive()
    assert begun == before
    finished.finish()  # what is left is tried once more
    finished.join(HANG)
    assert not finished.is_alive()
    assert begun == before + 1


def test_a_listener_that_fails_ends_nothing() -> None:
    supervisor, heal = _supervisor(), threading.Event()

    def work(thread: Supervised) -> None:
        if not heal.is_set():
            raise RuntimeError("planted")
        thread.well()

    def changed(_: object) -> None:
        heal.set()
        raise ValueError("the listener's own")

    thread = supervisor.start("worker", work, thread_name="w", changed=changed)
    thread.thread.join(HANG)
    assert not supervisor.statuses()
