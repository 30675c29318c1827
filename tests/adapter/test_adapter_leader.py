"""Who leads, and when somebody else may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mzsql.adapter import leader
from mzsql.adapter.catalog import DurableCatalog
from mzsql.adapter.leader import LEASE_MS, Leadership
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
    """A clock that the test puts forward."""

    ahead = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead


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
    other.kill()
    other.wait()
    # with the catalog as seen while the other lived: nobody tells of a death
    assert standby.hold(seen)
    assert catalog.sync().lease is not None
    assert standby.hold(catalog.state)


def test_a_leader_elsewhere_is_replaced_when_its_lease_has_lapsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs = [catalog_in(str(tmp_path)) for _ in range(2)]
    clock = Later()
    first, second = (Leadership(catalog, clock) for catalog in catalogs)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(leader, "this_process", lambda: "another-machine 1")
        assert first.hold(catalogs[0].state)
    assert not second.hold(catalogs[1].sync())
    clock.ahead = LEASE_MS - 5_000
    assert not second.hold(catalogs[1].sync())
    clock.ahead = LEASE_MS + 1
    assert second.hold(catalogs[1].sync())
    # the first, back from a pause, finds that it leads no more
    assert not first.hold(catalogs[0].state)
    # and given back it is free at once
    second.release()
    assert first.hold(catalogs[0].sync())
