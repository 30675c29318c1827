"""Where an environment has files on this machine that are no part of it: what replicas cache, and plans.

Promise: everything here may be deleted while no process uses the environment; that costs only time.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mzsql.adapter.environment.locations import Locations, hot_directory
from mzsql.adapter.environment.plan_files import remove_old_plans
from mzsql.compute.replica.arrangements.run_files import remove_old, remove_others
from mzsql.repr.lazy import lazy_property

#: What other environments have in the user's cache directory is deleted when unused for so many seconds.
_KEPT_SECONDS = 30 * 24 * 3600.0
_PLANS = "plans"


class LocalFiles:
    """The local directories of an environment: inside its own, else in the user's cache directory.

    Args:
        locations: where the environment is.
        environment_id: its id.
    """

    def __init__(self, locations: Locations, environment_id: str) -> None:
        self._locations = locations
        self._id = environment_id

    @lazy_property
    def _hot(self) -> Path | None:
        """Where replicas cache arrangements; None where this machine has no place for it."""
        return hot_directory(self._locations, self._id)

    def kept(self, replica_id: str) -> Path | None:
        """Where one replica caches its arrangements across restarts; None where there is no such place."""
        return None if self._hot is None else self._hot / replica_id

    @property
    def plans(self) -> Path | None:
        """Where plans over builtin relations are kept; None where there is no place, or nothing of the environment outlives the process."""
        if self._hot is None or self._locations.blob.startswith("mem:"):
            return None
        return self._hot.parent / _PLANS

    def clear(self, replicas: Collection[str], now: float) -> None:
        """Delete what nobody needs: what replicas that are not among these have cached, and the files of environments that were not
        opened here lately.
        """
        if self._hot is None:
            return
        remove_others(self._hot, replicas)
        if self._locations.directory is None:
            caches = self._hot.parents[1]
            remove_old(caches, _KEPT_SECONDS, now)
            remove_old_plans(caches, _PLANS, _KEPT_SECONDS, now)
