"""Preparing a deployment beside the one in charge: every plan made, and what has changed hydrated into arrangements of its own.

Promise: nothing is written but this build's part of the expression cache and shards that it names. What is read is leased. What has the
same plan and the same format as the deployment in charge goes on from that one's arrangements, and nothing is done for it; the rest is
brought forward as far as the deployment in charge has written, and no farther, so that it can be gone on from whenever that one ends. For
each object `Preparations` is told whether it is caught up, and why or why not.

Trade-off: what has changed has all of its arrangements made again, and the indexes that it reads, also those that are the same: of a
dataflow that runs nothing is shared between deployments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import is_

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.environment.preparations import Standing
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.process import PlansAhead
from mzsql.catalog.objects import Maintained, MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.compute.controller.controller import ComputeController, told
from mzsql.compute.logs import LogRow
from mzsql.compute.protocol import RefreshStats, Status, StatusRow
from mzsql.compute.replica.dataflow import Renderings, index_desc
from mzsql.render.naming import arrangement_name
from mzsql.repr.frontier import Frontier, Timestamp, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import done

_log = logging.getLogger(__name__)

#: So many plans are made before statements have their turn.
AT_ONCE = 64
#: What is no more than so many milliseconds behind the deployment in charge is caught up.
CAUGHT_UP_MS = 5_000
#: It is said so often how far objects are, in seconds.
TELL_SECONDS = 1.0

_GOES_ON = Standing(True, "goes on from the arrangements of the deployment in charge")
_STATELESS = Standing(True, "has no arrangements")
_UNPLANNED = Standing(False, "not planned yet")


class Unreported:
    """Statuses of dataflows that are not the deployment's in charge: they are told as standings only."""

    def connected(self, replica_id: str) -> None:
        """Nothing."""

    def stands(self, status: Status) -> None:
        """Nothing."""

    def refreshed(self, replica_id: str, stats: RefreshStats) -> None:
        """Nothing."""

    def introspected(
        self,
        relation: str,
        replica_id: str,
        updates: Sequence[tuple[LogRow, int]],
        *,
        anew: bool,
    ) -> None:
        """Nothing."""

    def keep(self, dataflows: Collection[tuple[GlobalId, str]]) -> None:
        """Nothing."""

    def update(self, rows: Sequence[tuple[StatusRow, int]]) -> None:
        """Nothing."""

    def delete_replica(self, replica_id: str) -> None:
        """Nothing."""


class Beside:
    """What this process prepares. Not thread-safe: the thread that leads calls it.

    Args:
        env: the environment.
        planner: plans by this build.
        renderings: what plans are as rendered.
        outlined: gives a plan what it is as rendered.
        controller: runs dataflows that write no views, with arrangements as `Preparations` has them.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        renderings: Renderings,
        outlined: Callable[[GlobalExpressions], GlobalExpressions],
        controller: ComputeController,
    ) -> None:
        self._env = env
        self._planner = planner
        self._renderings = renderings
        self._outlined = outlined
        self._controller = controller
        self._plans: dict[GlobalId, GlobalExpressions] = {}
        # Names of the arrangements that a dataflow goes on from, without workers.
        self._needs: dict[GlobalId, tuple[str, ...]] = {}
        self._failed: dict[GlobalId, str] = {}
        self._changed: set[GlobalId] = set()
        self._said: dict[GlobalId, Standing] = {}
        self._said_at = float("-inf")
        self._prepares = False
        self._ahead = PlansAhead(env.cache.lacking, planner.features)
        # As of what part of the catalog, and under which switches, plans are current.
        self._looked: object = None
        self._features: object = None
        # Of what part of the catalog what has changed was looked for last.
        self._seen: tuple[object, ...] = (None,) * 5

    def look(self, state: CatalogState, *, step_engine: str) -> bool:
        """Plan and hydrate some of what is left; whether there is more to plan at once."""
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
            # What another process has said is said again, or taken back.
            self._said, self._seen = {}, (None,) * 5
        if self._prepares and not claims:
            self._controller.stop()
        self._prepares = claims
        if claims:
            self._hydrate(state, step_engine)
            self._tell(state)
        return False

    def _forget_outdated(self, state: CatalogState) -> None:
        """Plan anew what the deployment in charge has given or taken an index since, or changed the switches of."""
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
            # What runs of it goes on from its arrangements, under the new plan.
            self._controller.stop()
            self._changed, self._seen = set(), (None,) * 5

    def _plan(self, items: Iterable[Maintained]) -> None:
        made: dict[GlobalId, GlobalExpressions] = {}
        for item in items:
            try:
                ahead = self._ahead.take(item.id)
                plan = ahead or self._outlined(self._planner.deploy(item))
                self._needs[item.id] = tuple(self._fingerprints(item, plan))
                made[item.id] = plan
            except Exception as failure:
                # It is planned again, and said by its reads, once this process leads.
                self._failed[item.id] = told(failure)
                _log.warning(
                    "%s cannot be run by this deployment: %s", item.full_name, told(failure)
                )
        self._plans |= made
        # Of this build nothing runs but what is made so.
        self._planner.remember_all(made, running=made.keys())

    def _fingerprints(self, item: Maintained, plan: GlobalExpressions) -> Iterator[str]:
        outline = plan.outline
        assert outline is not None
        yield from (one.fingerprint for one in outline.arrangements)
        if not isinstance(item, MaterializedView):
            rendered = self._renderings.of(plan.sealed, outline)
            yield index_desc(item.id, plan.sealed, rendered).fingerprint

    # --- what has changed ---------------------------------------------------------------------

    def _hydrate(self, state: CatalogState, step_engine: str) -> None:
        """Have what the deployment in charge cannot be gone on from made here, with the indexes that it reads."""
        # What does not change of the catalog is the same value in the next one.
        seen = (state.items, state.arrangements, state.clusters, state.replicas, step_engine)
        if self._controller.heard and all(map(is_, seen, self._seen)):
            self._controller.maintain()
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
        self._controller.maintain()

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
            # What cannot be planned is planned anew once the catalog changes, what has failed while it ran is tried again.
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
        """What an object is hydrated from as of a time, and nobody will bring there before the promotion; None where nothing is known to
        be so. Views are written by the deployment in charge alone.
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
        """How many milliseconds a dataflow is behind what it could have by now."""
        collections = self._env.collections
        there: Frontier
        if isinstance(item, MaterializedView):
            there = done(item.refresh, collections.seen_upper(item.id))
        else:
            plan = self._plans[item.id].sealed
            below = [statuses[gid].frontier for gid in plan.indexes if gid in statuses]
            there = meet(*(collections.seen_upper(gid) for gid in plan.sources), *below)
        if status.frontier is None or there is None:
            # It is complete for ever, or is of what is.
            return 0
        return max(0, there - status.frontier)

    # --- the end ------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the dataflows; what they have made is durable, and stays. Idempotent."""
        self._ahead.close()
        self._controller.stop()
