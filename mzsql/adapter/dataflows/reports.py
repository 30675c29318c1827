"""What is told of the dataflows of an environment, whoever maintains them: for errors of reads, and for builtin relations.

Promise: nothing here changes anything. What this process maintains it knows by itself; of what another one does it says what the catalog,
the expression cache and the processes of replicas tell. Where the cache lacks the plans of very many objects (of another build, for one),
a statement about all of them makes some of these plans, answers without the others and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.planning.planner import MOST_MADE, Planner
from mzsql.catalog.objects import Maintained
from mzsql.render.nodes.naming import fingerprint_in, index_in
from mzsql.repr.ids import GlobalId


class DataflowReports:
    """Says who maintains what, with which plan, and how that goes. Thread-safe.

    Args:
        env: the environment.
        planner: knows the plans of what other processes maintain.
        dataflows: what this process maintains.
        lacking: is told of how many objects a statement had no plan.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        dataflows: Dataflows,
        lacking: Callable[[int], None],
    ) -> None:
        self._env = env
        self._planner = planner
        self._dataflows = dataflows
        self._lacking = lacking

    def _runs(self, item: Maintained) -> GlobalExpressions:
        """The plan that an index or a materialized view runs with, in this process or another."""
        return self._dataflows.deployed(item.id) or self._planner.deployed(item)

    def who(self, gid: GlobalId) -> str:
        """Which process maintains an object, or why none does: a sentence for an error message."""
        state = self._env.catalog.state
        failure = self._dataflows.failure(gid)
        if failure is not None:
            return f"Its dataflow fails: {failure.rstrip('.')}."
        behind = self._failing_below(gid)
        if behind is not None:
            return behind
        names = ", ".join(f"{r.name} (size {r.size})" for r in state.replicas.values()) or "none"
        lease = state.lease
        led = seems_alive(lease, self._env.clock.now_ms())
        who = (
            f"they are run by process {lease.who}"
            if led and lease is not None
            else "no process runs them now"
        )
        return f"Replicas: {names}; {who}."

    def _failing_below(self, gid: GlobalId) -> str | None:
        """A sentence that names a failing object which an object's dataflow reads, directly or through others; None where none fails."""
        items = self._env.catalog.state.items
        met, waiting = {gid}, [gid]
        while waiting:
            item = items.get(waiting.pop())
            if not isinstance(item, Maintained):
                continue
            runs = self._runs(item)
            for read in (*runs.sealed.sources, *runs.index_imports):
                if read in met:
                    continue
                met.add(read)
                waiting.append(read)
                below, failure = items.get(read), self._dataflows.failure(read)
                if below is not None and failure is not None:
                    return f'It reads {below.noun} "{below.full_name}", whose dataflow fails: {failure.rstrip(".")}.'
        return None

    def running(self) -> Iterator[tuple[Maintained, GlobalExpressions | None]]:
        """Each index and materialized view with the plan that it runs with, in this process or another; None where it is not known."""
        lacking = 0
        for item, runs in self._planner.running(self._dataflows.plans):
            lacking += runs is None
            yield item, runs
        if lacking:
            self._lacking(lacking)

    def arrangements(self) -> Iterator[tuple[str, int, str, str]]:
        """The arrangements of all running dataflows, whoever maintains them: object id, LIR id, replica id and shard."""
        registered: dict[str, list[tuple[str, str]]] = {}
        for name, shard in sorted(self._env.catalog.state.arrangements.items()):
            replica, _, rest = name.partition("/")
            fingerprint = fingerprint_in(rest)
            registered.setdefault(index_in(fingerprint) or fingerprint, []).append((replica, shard))
        if not registered:
            return
        lacking, left = 0, MOST_MADE
        for item, plan in self._planner.running(self._dataflows.plans):
            runs = plan
            if runs is not None and not runs.is_outlined and left:
                runs, left = self._planner.outlined_once(item, runs), left - 1
            lacking += runs is None or not runs.is_outlined
            if runs is None:
                continue
            for lir_id, fingerprint in runs.arrangements or ():
                for replica, shard in registered.get(fingerprint, ()):
                    yield item.id, lir_id, replica, shard
            for replica, shard in registered.get(item.id, ()):
                yield item.id, runs.plan.root.plan.lir_id, replica, shard
        if lacking:
            self._lacking(lacking)
