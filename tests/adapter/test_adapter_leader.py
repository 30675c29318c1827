"""Who leads, and when somebody else may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mzsql.adapter.environment import leader
from mzsql.adapter.environment.leader import ALONE_MS, LEASE_MS, Leadership
from mzsql.catalog.durable import DurableCatalog
from mzsql.location import open_blob, open_consensus
from mzsql.persist import PersistClient, SystemClock

SHARD = "s00000000-0000-4000-8000-000000000001"

LEADING = """
import sys
from test_adapter_leader import Leadership, SystemClock, catalog_in
assert Leadership(catalog_in(sys.argv[1]), SystemClock()).hold(catalog_in(sys.argv[1]).state)
print("leads", flush=True)
sys.stdin.readline()
"""


class Later(SystemClock):
    """A clock that the test puts forward; its wall clock may be wrong."""

    ahead = 0
    wrong = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead + self.wrong

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead / 1000


def catalog_in(place: str) -> DurableCatalog:
    blob, consensus = open_blob(f"file:{place}/blob"), open_consensus(f"sqlite:{place}/c.db")
    return DurableCatalog(PersistClient(blob, consensus, background=False), SHARD)


def test_a_leader_that_was_killed_here_is_replaced_at_once(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", LEADING, str(tmp_path)],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "leads\n"
    catalog = catalog_in(str(tmp_path))
    standby = Leadership(catalog, SystemClock())
    seen = catalog.state
    assert not standby.hold(seen)
    assert catalog.state.lease == seen.lease
    other.kill()
    other.wait()
    # with the catalog as seen while the other lived: nobody tells of a death
    assert standby.hold(seen)
    assert catalog.sync().lease is not None
    assert standby.hold(catalog.state)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell whether a process is still there."""
    monkeypatch.setattr(leader, "is_gone", lambda _: False)


def two_of(place: Path) -> tuple[DurableCatalog, DurableCatalog]:
    return catalog_in(str(place)), catalog_in(str(place))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("wrong", [-7_200_000, 0])
def test_a_leader_elsewhere_is_replaced_when_it_has_given_no_sign_of_life(
    tmp_path: Path, wrong: int
) -> None:
    catalogs = two_of(tmp_path)
    clock, other = Later(), Later()
    first, second = Leadership(catalogs[0], clock), Leadership(catalogs[1], other)
    assert first.hold(catalogs[0].state)
    other.wrong = wrong
    for ahead in (0, 500, LEASE_MS - 5_000):
        other.ahead = ahead
        assert not second.hold(catalogs[1].sync())
    other.ahead = LEASE_MS + 1_000
    assert second.hold(catalogs[1].sync())
    # the first, back from a pause, finds that it leads no more
    clock.ahead = LEASE_MS + 1_000
    assert not first.hold(catalogs[0].sync())
    # and given back it is free at once
    second.release()
    assert first.hold(catalogs[0].sync())


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("wrong", [-2 * ALONE_MS, -600_000, 0, 600_000, 2 * ALONE_MS])
def test_a_leader_that_lives_is_not_replaced_however_the_clocks_differ(
    tmp_path: Path, wrong: int
) -> None:
    catalogs = two_of(tmp_path)
    clock, other = Later(), Later()
    other.wrong = wrong
    first, second = Leadership(catalogs[0], clock), Leadership(catalogs[1], other)
    assert first.hold(catalogs[0].state)
    for ahead in range(0, 600_000, 500):
        clock.ahead = other.ahead = ahead
        assert first.hold(catalogs[0].sync())
        assert not second.hold(catalogs[1].sync())


@pytest.mark.usefixtures("elsewhere")
def test_a_leader_that_nobody_waits_for_writes_next_to_nothing(tmp_path: Path) -> None:
    catalogs = two_of(tmp_path)
    clock = Later()
    alone = Leadership(catalogs[0], clock)
    assert alone.hold(catalogs[0].state)
    step = catalogs[0].step
    for ahead in range(0, 2 * ALONE_MS, 10_000):
        clock.ahead = ahead
        assert alone.hold(catalogs[0].state)
    assert catalogs[0].step <= step + 4
    # until somebody waits, and again once that one has gone
    other = Leadership(catalogs[1], clock)
    assert not other.hold(catalogs[1].sync())
    step = catalogs[0].sync() and catalogs[0].step
    for _ in range(10):
        clock.ahead += LEASE_MS * 2 // 3
        assert alone.hold(catalogs[0].sync())
        assert not other.hold(catalogs[1].sync())
    assert catalogs[0].step == step + 10
    other.release()
    for _ in range(10):
        clock.ahead += LEASE_MS * 2 // 3
        assert alone.hold(catalogs[0].sync())
    assert catalogs[0].step <= step + 12
    assert catalogs[0].state.standbys == {}


@pytest.mark.usefixtures("elsewhere")
def test_one_that_waits_for_long_is_not_forgotten(tmp_path: Path) -> None:
    catalogs = two_of(tmp_path)
    clock = Later()
    first, second = (Leadership(catalog, clock) for catalog in catalogs)
    assert first.hold(catalogs[0].state)
    for ahead in range(0, 3 * ALONE_MS, LEASE_MS // 3):
        clock.ahead = ahead
        assert first.hold(catalogs[0].sync())
        assert not second.hold(catalogs[1].sync())
    assert list(catalogs[0].sync().standbys) == [second.token]


@pytest.mark.usefixtures("elsewhere")
def test_of_many_that_wait_one_takes_over(tmp_path: Path) -> None:
    catalogs = [catalog_in(str(tmp_path)) for _ in range(4)]
    clock = Later()
    waiting = [Leadership(catalog, clock) for catalog in catalogs]
    assert waiting[0].hold(catalogs[0].state)
    led = []
    for ahead in range(0, 2 * LEASE_MS, 1_000):
        clock.ahead = ahead
        led = [n for n in (1, 2, 3) if waiting[n].hold(catalogs[n].sync())]
        assert len(led) <= 1
    assert led
    assert not waiting[0].hold(catalogs[0].sync())


def test_a_lease_that_another_has_taken_meanwhile_is_not_taken_over(tmp_path: Path) -> None:
    catalogs = [catalog_in(str(tmp_path)) for _ in range(3)]
    first, one, two = (Leadership(catalog, SystemClock()) for catalog in catalogs)
    fresh = catalogs[2].state
    assert first.hold(catalogs[0].state)
    assert not two.hold(fresh)  # as seen before anybody led
    first.release()
    free = catalogs[2].sync()
    assert one.hold(catalogs[1].sync())
    assert not two.hold(free)  # as seen before the other took it
    lease = catalogs[2].sync().lease
    assert lease is not None
    assert lease.token == one.token
    # What waits and gives that up leaves the lease to who holds it.
    two.release()
    assert catalogs[2].sync().lease == lease
    assert one.hold(catalogs[1].sync())
