"""Which dataflows are opened when: many that come one after another are installed first, but for those that somebody waits for."""

from __future__ import annotations

from types import SimpleNamespace

from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import State
from mzsql.compute.replica.scheduling.openings import (
    COMES_SECONDS,
    GATHERS_SECONDS,
    MANY,
    OPEN_SECONDS,
    Openings,
)


class World:
    """Dataflows that are opened in no time, on the thread that looks; time passes as it is told to."""

    def __init__(self):
        self.installed = Installed("r1", lambda _: None)
        self.awaited, self.opened, self.queued = [], [], []
        self.now = 100.0
        lane = SimpleNamespace(put=self.queued.append)
        work = SimpleNamespace(openings=lane, mark=lambda _: None, open=self._open)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.openings = Openings(self.installed, work, lambda: self.awaited, clock)

    def _open(self, flow):
        flow.state = State.RUNNING
        del self.installed.opening[flow.gid]
        self.opened.append(flow.gid)

    def add(self, gid, *inputs):
        rendered = SimpleNamespace(inputs=[SimpleNamespace(id=one, index=False) for one in inputs])
        flow = SimpleNamespace(
            gid=gid, rendered=rendered, status=lambda: None, state=State.OPENING,
            busy=False, ends=False, retry_at=0.0, lost=False,
        )  # fmt: skip
        self.installed.add(flow)

    def look(self):
        """Look once, do what was queued for that, and return when to look again."""
        again = self.openings.look(self.now)
        while self.queued:
            self.queued.pop()()
        return again

    def woken(self):
        return self.installed.woken()


def test_few_are_opened_as_they_come():
    world = World()
    for number in range(MANY - 1):
        world.add(f"u{number}")
        assert world.woken()
        world.look()
        assert world.opened[-1] == f"u{number}"
        assert world.woken()  # somebody may wait for what was opened


def test_of_many_that_come_only_what_is_awaited_is_opened():
    world = World()
    for number in range(MANY):
        world.add(f"u{number}")
    assert world.look() == COMES_SECONDS
    world.woken()
    world.add("v1", "u7")
    # They are looked at soon in any case, so that nobody is woken for each.
    assert not world.woken()
    assert world.look() == COMES_SECONDS
    assert world.opened == []
    world.awaited = ["v1"]
    world.look()
    assert world.opened == ["u7", "v1"]
    assert world.woken()
    world.now += COMES_SECONDS
    world.look()
    assert len(world.opened) == MANY + 1


def test_what_goes_on_coming_is_opened_all_the_same():
    world = World()
    for number in range(MANY):
        world.add(f"u{number}")
    begun = world.now
    while not world.opened:
        world.look()
        world.add(f"v{world.now}")
        world.now += COMES_SECONDS / 2
        assert world.now - begun <= GATHERS_SECONDS + 1
    assert world.now - begun >= GATHERS_SECONDS


def test_a_dataflow_wakes_again_once_none_is_to_be_opened():
    world = World()
    for number in range(MANY):
        world.add(f"u{number}")
    world.look()
    for gid in list(world.installed.opening):
        del world.installed.opening[gid]
    world.look()
    world.woken()
    world.add("v1")
    assert world.woken()


def test_a_batch_of_openings_ends_in_time():
    world = World()
    took = world.openings._work.open

    def slow(flow):
        world.now += OPEN_SECONDS
        took(flow)

    world.openings._work.open = slow
    for number in range(3):
        world.add(f"u{number}")
    world.look()
    assert world.opened == ["u0"]
