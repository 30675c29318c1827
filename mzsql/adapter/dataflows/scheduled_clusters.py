"""Clusters that have a replica only where a view in them is to be refreshed: SCHEDULE = ON REFRESH.

Promise: such a cluster is on while a view with a REFRESH schedule in it has a refresh due (or due within the estimate of its hydration),
and for `COMPACTION_ESTIMATE` after its last refresh; else it is off. The leader decides every `SCHEDULING_INTERVAL`, and the audit log has
each decision that switched one. One thread calls.
"""

from __future__ import annotations

import logging
from collections import defaultdict

import msgspec

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.change import Change
from mzsql.catalog.commands.clusters import switch_cluster
from mzsql.catalog.objects import SYSTEM_ROLES, Cluster, MaterializedView
from mzsql.catalog.settings import (
    COMPACTION_ESTIMATE,
    SCHEDULING_INTERVAL,
    milliseconds,
    system_value,
)
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import Fenced, SqlError
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interval import Interval
from mzsql.repr.refresh import OnRefresh, RefreshSchedule

_log = logging.getLogger(__name__)


class Decision(msgspec.Struct, frozen=True):
    """Whether a cluster is to be on, and for which views: those to be refreshed, and those refreshed lately."""

    refreshing: tuple[GlobalId, ...] = ()
    compacting: tuple[GlobalId, ...] = ()

    @property
    def on(self) -> bool:
        """Whether it is to have its replica."""
        return bool(self.refreshing or self.compacting)

    def told(self, schedule: OnRefresh) -> dict[str, object]:
        """What the audit log says of it."""
        estimate = Interval(microseconds=schedule.hydration_ms * 1000)
        return {
            "decision": "on" if self.on else "off",
            "hydration_time_estimate": str(estimate),
            "objects_needing_compaction": [str(one) for one in self.compacting],
            "objects_needing_refresh": [str(one) for one in self.refreshing],
        }


def is_due(refresh: RefreshSchedule, upper: Frontier, by: Timestamp) -> bool:
    """Whether the next refresh of a view that is complete below ``upper`` is at ``by`` or before."""
    following = None if upper is None else refresh.round_up(upper)
    return following is not None and following <= by


def is_fresh(refresh: RefreshSchedule, upper: Frontier, since: Timestamp) -> bool:
    """Whether the last refresh of a view that is complete below ``upper`` was at ``since`` or after."""
    last = refresh.last if upper is None else refresh.last_before(upper)
    return last is not None and last >= since


class ScheduledClusters:
    """Switches clusters on and off.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._looked: float | None = None

    def look(self, state: CatalogState) -> None:
        """Decide of all such clusters, if it is time to."""
        clusters = [one for one in state.clusters.values() if one.schedule is not None]
        if not clusters:
            return
        now, every = self._env.clock.monotonic(), self._setting(state, SCHEDULING_INTERVAL)
        if self._looked is not None and (now - self._looked) * 1000 < every:
            return
        self._looked = now
        views: dict[str, list[MaterializedView]] = defaultdict(list)
        for view in state.of(MaterializedView):
            if view.refresh is not None:
                views[view.cluster].append(view)
        for cluster in clusters:
            try:
                self._switch(cluster, self._decided(state, cluster, views[cluster.name]))
            except Fenced:
                raise
            except SqlError as failure:
                # A limit, a view that was just dropped or a store that does not answer: the other clusters have theirs, and this one is
                # looked at again.
                _log.warning(
                    "cluster %s is not switched by its schedule: %s", cluster.name, failure
                )

    def _decided(
        self, state: CatalogState, cluster: Cluster, views: list[MaterializedView]
    ) -> Decision:
        assert cluster.schedule is not None
        present = self._env.oracle.present_ms()
        since = present - self._setting(state, COMPACTION_ESTIMATE)
        refreshing, compacting = [], []
        for view in views:
            assert view.refresh is not None
            upper = self._env.collections.seen_upper(view.id)
            upper = None if upper is None else max(upper, view.as_of)
            if is_due(view.refresh, upper, present + cluster.schedule.hydration_ms):
                refreshing.append(view.id)
            elif is_fresh(view.refresh, upper, max(since, view.as_of)):
                compacting.append(view.id)
        return Decision(tuple(refreshing), tuple(compacting))

    def _switch(self, cluster: Cluster, decision: Decision) -> None:
        # One that was given several replicas before it was given the schedule keeps one.
        if cluster.schedule is None or cluster.replication_factor == int(decision.on):
            return

        def switched(state: CatalogState) -> tuple[Change, None]:
            return switch_cluster(state, cluster.id, on=decision.on), None

        policies = {"on_refresh": decision.told(cluster.schedule)}
        self._env.define(switched, SYSTEM_ROLES[0].name, policies)

    @staticmethod
    def _setting(state: CatalogState, name: str) -> int:
        return milliseconds(system_value(state.settings, name), name)
