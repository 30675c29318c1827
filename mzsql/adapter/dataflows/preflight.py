"""Preparing a deployment beside the one in charge: planning everything, and hydrating what differs into arrangements of
its own.

Promise: nothing is written but this build's part of the expression cache, and the shards that it names; what is read is
leased. An object whose plan and format are those of the deployment in charge reuses that one's arrangements, and
nothing is done for it. Any other is hydrated and then kept as fresh as the deployment in charge has written, not
fresher, so that the switch may come at any moment. `Preparations` is told for each object whether it has caught up,
with the reason. See docs/architecture.md, decision 8.

The trade-off: an object that differs gets all of its arrangements made again, and so do the indexes that it reads, even
if those are the same: running dataflows share nothing between deployments.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import is_

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.environment.preparations import Standing
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.process import PlansAhead
from mzsql.catalog.objects import Maintained, MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.logs import LogRow
from mzsql.compute.protocol import RefreshStats, Status, StatusRow
from mzsql.compute.replica.dataflows.dataflow import index_desc
from mzsql.render.nodes.naming import arrangement_name
from mzsql.repr.errors import told
from mzsql.repr.frontier import Frontier, Timestamp, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import done

_log = logging.getLogger(__name__)

#: At most so many plans are made in one look, before the lock goes to other threads.
AT_ONCE = 64
#: An object at most so many milliseconds behind the deployment in charge has caught up.
CAUGHT_UP_MS = 5_000
#: Seconds between two reports of the objects' standings.
TELL_SECONDS = 1.0

_GOES_ON = Standing(True, "goes on from the arrangements of the deployment in charge")
_STATELESS = Standing(True, "has no arrangements")
_UNPLANNED = Standing(False, "not planned yet")


class Unreported:
    """Discards statuses of dataflows that are only prepared: their state is reported as standings instead."""

    def connected(self, replica_id: str) -> None:
        """Do nothing."""

    def stands(self, status: Status) -> None:
        """Do nothing."""

    def refreshed(self, replica_id: str, stats: RefreshStats) -> None:
        """Do nothing."""

    def introspected(
        self,
        relation: str,
        replica_id: str,
        updates: Sequence[tuple[LogRow, int]],
        *,
        anew: bool,
    ) -> None:
        """Do nothing."""

    def keep(self, dataflows: Collection[tuple[GlobalId, str]]) -> None:
        """Do nothing."""

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Do nothing."""

    def delete_replica(self, replica_id: str) -> None:
        """Do nothing."""


def _alone() -> bool:
    """Nobody else commands these replicas, whose indexes are theirs alone."""
    return True


class Preflight:
    """What this process prepares. Not thread-safe: the leading thread calls it.

    Args:
        env: the environment.
        planner: plans with this build.
        controller: runs dataflows that write no views, with arrangements as `Preparations` names them.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        controller: ComputeController,
    ) -> None:
        self._env = env
        self._planner = planner
        self._controller = controller
        self._plans: dict[GlobalId, GlobalExpressions] = {}
        # Fingerprints of the arrangements that each dataflow needs, without the number of workers.
        self._needs: dict[GlobalId, tuple[str, ...]] = {}
        self._failed: dict[GlobalId, str] = {}
        self._changed: set[GlobalId] = set()
        self._said: dict[GlobalId, Standing] = {}
        self._said_at = float("-inf")
        self._prepares = False
        self._ahead = PlansAhead(env.cache.lacking, planner.features)
        # The catalog's items and the optimizer's switches when plans were last checked.
        self._looked: object = None
        self._features: object = None
        # The parts of the catalog when changed objects were last looked for.
        self._seen: tuple[object, ...] = (None,) * 5

    def look(self, state: CatalogState, *, step_engine: str) -> bool:
        """Plan some of what is missing, then hydrate what differs and report how far it is.

        Args:
            state: the catalog as last read.
            step_engine: the engine for steps.

        Returns:
            Whether more is to be planned at once.
        """
        for of_gone in (self._plans, self._needs, self._failed):
            for gid in of_gone.keys() - state.items.keys():
                del of_gone[gid]
        self._forget_outdated(state)
        known = self._plans.keys() | self._failed.keys()
        missing = [one for one in state.maintained if one.id not in known]
        self._ahead.look(state, {one.id: one for one in missing})
        self._plan(missing[:AT_ONCE])
        if len(missing) > AT_ONCE:
            return True
        self._ahead.close()
        claims = self._env.preparations.claim(self._env.generation)
        if claims and not self._prepares:
            # Another process may have claimed this build before: report every standing again.
            self._said, self._seen = {}, (None,) * 5
        if self._prepares and not claims:
            self._controller.stop()
        self._prepares = claims
        if claims:
            self._hydrate(state, step_engine)
            self._tell(state)
        return False

    def _forget_outdated(self, state: CatalogState) -> None:
        """Forget plans that are no longer current, because the deployment in charge created or dropped an index or
        changed the optimizer's switches.
        """
        if self._looked is state.items and self._features == self._planner.features():
            return
        self._looked, self._features = state.items, self._planner.features()
        outdated = {
            item.id
            for item in state.maintained
            if (plan := self._plans.get(item.id)) and not self._planner.is_current(item, plan)
        }
        for gid in outdated:
            del self._plans[gid], self._needs[gid]
        self._failed.clear()
        if outdated & self._changed:
            # A hydrating object has a new plan: restart the dataflows, which reuse the arrangements that fit.
            self._controller.stop()
            self._changed, self._seen = set(), (None,) * 5

    def _plan(self, items: Iterable[Maintained]) -> None:
        made: dict[GlobalId, GlobalExpressions] = {}
        for item in items:
            try:
                ahead = self._ahead.take(item.id)
                plan = ahead or self._planner.outlined(self._planner.deploy(item))
                self._needs[item.id] = tuple(self._fingerprints(item, plan))
                made[item.id] = plan
            except Exception as failure:
                # Recorded as its standing. After the promotion it is planned again, and its reads fail with the error.
                self._failed[item.id] = told(failure)
                _log.warning(
                    "%s cannot be run by this deployment: %s", item.full_name, told(failure)
                )
        self._plans |= made
        # This build runs no other plans.
        self._planner.remember_all(made, running=made.keys())

    def _fingerprints(self, item: Maintained, plan: GlobalExpressions) -> Iterator[str]:
        outline = plan.outline
        assert outline is not None
        yield from (one.fingerprint for one in outline.arrangements)
        if not isinstance(item, MaterializedView):
            rendered = self._planner.renderings.of(plan.sealed, outline)
            yield index_desc(item.id, plan.sealed, rendered).fingerprint

    # --- what has changed ---------------------------------------------------------------------

    def _hydrate(self, state: CatalogState, step_engine: str) -> None:
        """Hydrate the objects that cannot reuse the arrangements of the deployment in charge, with the indexes that
        they read.
        """
        # A new catalog state shares its unchanged parts with the old one, so identities tell whether anything changed.
        seen = (state.items, state.arrangements, state.clusters, state.replicas, step_engine)
        if self._controller.heard and all(map(is_, seen, self._seen)):
            self._controller.maintain(_alone)
            return
        self._seen = seen
        waiting = [item.id for item in state.maintained if self._has_changed(item, state)]
        while waiting:
            gid = waiting.pop()
            if gid in self._changed or gid not in self._plans:
                continue
            self._changed.add(gid)
            waiting += self._plans[gid].sealed.indexes
        self._changed &= state.items.keys()
        missing = self._controller.reconcile(state, step_engine=step_engine)
        wanted = [item for item in missing if item.id in self._changed]
        if wanted:
            plans = {item.id: self._plans[item.id].sealed for item in wanted}
            outlines = {
                item.id: outline
                for item in wanted
                if (outline := self._plans[item.id].outline) is not None
            }
            self._controller.install(wanted, plans, state, outlines)
        self._controller.maintain(_alone)

    def _has_changed(self, item: Maintained, state: CatalogState) -> bool:
        replica = state.serving(item.cluster)
        if replica is None or item.id not in self._needs:
            return False
        names = (arrangement_name(one, replica.workers) for one in self._needs[item.id])
        return any(f"{replica.id}/{name}" not in state.arrangements for name in names)

    # --- how far it is ------------------------------------------------------------------------

    def _tell(self, state: CatalogState) -> None:
        now = self._env.clock.monotonic()
        if now - self._said_at < TELL_SECONDS:
            return
        self._said_at = now
        statuses = {status.object_id: status for status in self._controller.status()}
        standings = {item.id: self._standing(item, state, statuses) for item in state.maintained}
        news: dict[GlobalId, Standing | None] = {
            gid: one for gid, one in standings.items() if self._said.get(gid) != one
        }
        news |= dict.fromkeys(self._said.keys() - standings.keys())
        if news:
            self._env.preparations.tell(news)
            self._said = standings

    def _standing(
        self, item: Maintained, state: CatalogState, statuses: dict[GlobalId, Status]
    ) -> Standing:
        failure = self._failed.get(item.id) or self._controller.failure(item.id)
        if failure is not None:
            # An object that cannot be planned stays so until the catalog changes. A dataflow that failed while running
            # is retried.
            settled = item.id in self._failed
            return Standing(False, f"cannot be run: {failure}", settled)
        if item.id not in self._plans:
            return _UNPLANNED
        if item.id not in self._changed:
            return _GOES_ON if self._needs[item.id] else _STATELESS
        status = statuses.get(item.id)
        if status is None or status.state != "running":
            lacks = None if status is None else self._lacks(item.id, state, status.as_of)
            if lacks is not None:
                return Standing(True, f"hydrated after the promotion: {lacks}", settled=True)
            return Standing(False, "its plan or its format is another: being hydrated")
        behind = self._behind(item, status, statuses)
        if behind <= CAUGHT_UP_MS:
            return Standing(True, "its plan or its format is another: hydrated, and up to date")
        return Standing(False, f"hydrated, and {behind // 1000} s behind the deployment in charge")

    def _lacks(self, gid: GlobalId, state: CatalogState, as_of: Timestamp) -> str | None:
        """What keeps an object from being hydrated as of ``as_of`` before the promotion: a sentence; None where nothing
        known does.

        A view is written only by the deployment in charge, so a view that has not reached the time and has no process
        to write it never will.
        """
        ends = not seems_alive(state.lease, self._env.clock.now_ms())
        met, waiting = {gid}, [gid]
        while waiting:
            plan = self._plans.get(waiting.pop())
            if plan is None:
                continue
            for read in (*plan.sealed.sources, *plan.index_imports):
                view = state.items.get(read)
                if read in met or not isinstance(view, Maintained):
                    continue
                if isinstance(view, MaterializedView):
                    there = self._env.collections.upper(read)
                    if there is None or there > as_of:
                        continue
                    if ends:
                        return f"{view.full_name}, which it reads, was not brought there before the process that ran the dataflows ended"
                if state.serving(view.cluster) is None:
                    return f"{view.full_name}, which it reads, is on a cluster without replicas"
                met.add(read)
                waiting.append(read)
        return None

    def _behind(
        self, item: Maintained, status: Status, statuses: dict[GlobalId, Status]
    ) -> Timestamp:
        """How many milliseconds a dataflow is behind the frontier that it could have reached by now."""
        collections = self._env.collections
        there: Frontier
        if isinstance(item, MaterializedView):
            there = done(item.refresh, collections.seen_upper(item.id))
        else:
            plan = self._plans[item.id].sealed
            below = [statuses[gid].frontier for gid in plan.indexes if gid in statuses]
            there = meet(*(collections.seen_upper(gid) for gid in plan.sources), *below)
        if status.frontier is None or there is None:
            # The empty frontier: it, or all that it reads, is complete for ever.
            return 0
        return max(0, there - status.frontier)

    # --- the end ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the dataflows; what they have written is durable and stays. Idempotent."""
        self._ahead.close()
        self._controller.stop()
