"""Schedules of `simulation_protocol`: one is drawn from a seed, played, and judged at its end.

``python tests/simulation/simulation_protocol_run.py SEED`` plays one again, ``… FIRST COUNT`` so many.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from simulation_protocol import Link, Process, World
from simulation_replica import ModelReplica, Violation, installed

from mzsql.catalog.objects import Index
from mzsql.compute.controller.dataflow_state import DataflowState
from mzsql.repr.ids import GlobalId

#: So many acts a schedule has, of everybody together.
ACTS = 250
#: Everything comes to rest within so many acts once faults are over.
MOST_ACTS = 20_000
#: Longer than anybody waits for another replica, in events.
REST = 20
#: What happens, and how often beside one act of those that talk.
EVENTS = (
    ("write", 6), ("compact", 6), ("tick", 8), ("create", 4), ("drop", 2), ("ask", 2), ("start", 3),
    ("kill", 2), ("stop", 1), ("wake", 1), ("leave", 0.5), ("cut", 3), ("fail_over", 0.7),
    ("add_replica", 0.3), ("drop_replica", 0.3), ("resize", 0.3),
)  # fmt: skip
#: So many acts of those that talk for each event.
TALK = 3


def play(seed: int) -> Counter[str]:
    """Play a schedule; what it has met.

    Raises:
        Violation: something was so that must never be.
    """
    world = World(seed)
    names, weights = zip(*EVENTS, strict=True)
    for _ in range(ACTS):
        world.now += 1
        getattr(world, world.rng.choices(names, weights)[0])()
        for _ in range(world.rng.randrange(2 * TALK)):
            if work := world.work():
                world.rng.choice(work)()
    _calm(world)
    _rest(world)
    _judge(world)
    # Every process begins anew, and nothing is made again that is there.
    for one in list(world.processes.values()):
        one.kill()
    world.fail_over()
    _calm(world)
    there = world.durable.arrangements.keys() - world.durable.excused
    world.durable.hydrated.clear()
    _rest(world)
    _judge(world)
    if again := there.intersection(world.durable.hydrated):
        raise Violation(f"what was there was hydrated anew: {again}")
    return Counter(world.durable.met)


def _calm(world: World) -> None:
    """Faults are over: who led before has noticed, each replica that a process had has one that runs."""
    world.wake()
    world.leaders = [world.leader]
    for one in list(world.catalog.replicas.values()):
        if one.process is not None and not world._lives(one):
            world._start(one)
    # What was asked for a time that has not come yet is answered, too.
    uppers = world.durable.uppers
    uppers.update(dict.fromkeys(uppers, max(uppers.values()) + 2))


def _rest(world: World) -> None:
    """Everybody goes on until there is nothing to do."""
    idle = 0
    for _ in range(MOST_ACTS):
        work = world.work()
        if work:
            idle = 0
            world.rng.choice(work)()
            continue
        was = world.catalog, _sent(world)
        # What waits for another replica sees that first, and waits from then on.
        world.now += REST
        world.leader.tick()
        world.compact()
        idle += 1
        if idle > 2 and not world.work() and was == (world.catalog, _sent(world)):
            return
    raise Violation("it does not come to rest")


def _sent(world: World) -> int:
    return sum(one.conversation.waiting for one in world.leader.links)


def _model(world: World, replica_id: str) -> ModelReplica | None:
    """What runs for a replica now."""
    entry = world.catalog.replicas[replica_id]
    if entry.process is not None:
        return world.processes[entry.process.secret].model
    here = [one for one in world.leader.here if one.id == replica_id and not one.closed]
    return here[-1] if here else None


def _judge(world: World) -> None:
    controller = world.leader.controller
    wanted = set(world.catalog.items)
    runs = wanted - world.durable.refused
    shown = set()
    for one in world.catalog.working("c1"):
        client = controller._replicas.get(one.id)
        model = _model(world, one.id)
        flows = {} if model is None else {flow.gid: flow for flow in installed(model)}
        told = set() if client is None else {status.object_id for status in client.status()}
        _same(told, wanted, f"what {one.id} was told of")
        if model is None or client is None:
            _same(runs, set(), f"what {one.id} runs")
            continue
        for known in client._dataflows.values():
            flow = model.flows.get(known.command.id)
            if flow is not None and flow.command.dataflow != known.command.dataflow:
                raise Violation(f"{flow.gid} runs on {one.id} with another plan")
            if flow is not None and flow.is_index:
                _judge_index(world, one.id, flow.gid)
        # An index that is read is maintained, unseen, until nobody reads it.
        unseen = {gid for gid, known in client._dataflows.items() if known.dropped}
        read = {
            index
            for known in client._dataflows.values()
            if not known.dropped
            for index in known.command.dataflow.indexes
        }
        _same(set(flows), runs | unseen, f"what runs on {one.id}")
        if not unseen <= read:
            raise Violation(f"{one.id} has {unseen - read}, which nobody reads")
        for status in client.status():
            _judge_status(world, one.id, status.object_id, status.state, status.frontier)
        shown |= {(gid, one.id) for gid in runs}
        _judge_holds(world, client._dataflows, one.id, apart=client.apart)
    rows = {(row.object_id, row.replica_id): row.hydrated for row, n in world.rows.items() if n}
    _same(set(rows), shown, "what is shown")
    if not all(rows.values()):
        raise Violation(f"shown as not hydrated: {rows}")
    for process in world.processes.values():
        _judge_process(world, process)
    for link in world.leader.links:
        _judge_link(world, link)


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Violation(f"{what}: {found}, not {wanted}")


def _judge_index(world: World, replica: str, gid: str) -> None:
    since = world.durable.index_sinces[replica, gid]
    if since < max(world.durable.uppers.values()) - 3:
        raise Violation(f"index {gid} on {replica} keeps all since {since}")


def _judge_status(world: World, replica: str, gid: str, state: str, frontier: int | None) -> None:
    if gid in world.durable.refused:
        _same(state, "refused", f"{gid} on {replica}")
        return
    _same(state, "running", f"{gid} on {replica}")
    upper = min(world.durable.uppers[one] for one in world.catalog.items[gid].depends_on)
    _same(frontier, upper, f"the frontier of {gid} on {replica}")
    if not isinstance(world.catalog.items[gid], Index):
        _same(world.durable.outputs[gid], upper, f"the upper of {gid}")


def _judge_holds(
    world: World, dataflows: Mapping[GlobalId, DataflowState], replica: str, *, apart: bool
) -> None:
    """Of a replica in another process the controller holds what it reads, and what its indexes do, and no more than it needs."""
    for gid, known in dataflows.items():
        sources = set(known.command.dataflow.sources)
        for index in known.command.dataflow.indexes:
            sources.update(dataflows[index].command.dataflow.sources)
        held = sorted(one.source for one in known.holds)
        refused = gid in world.durable.refused
        _same(
            held,
            sorted(sources) if apart and not refused else [],
            f"what is held for {gid} on {replica}",
        )
    # Nothing else holds anything.
    living = world.durable.living()
    lowest = {
        s: min((h.since for h in living if h.source == s), default=None)
        for s in world.durable.uppers
    }
    for source, since in lowest.items():
        if (
            since is not None
            and since < world.durable.uppers[source] - 2
            and not world.durable.refused
        ):
            raise Violation(
                f"{source} is held at {since}, and is at {world.durable.uppers[source]}"
            )


def _judge_process(world: World, process: Process) -> None:
    if not process.alive or process.model is None:
        return
    entry = world.catalog.replicas.get(process.replica_id)
    if entry is None or world._process_of(entry) is not process:
        return
    reconciled = process.reconciled
    _same(reconciled._waiting, {}, f"what waits in the process of {process.replica_id}")
    known = set(reconciled._known) - world.durable.refused
    _same(known, set(process.model.flows), f"what the process of {process.replica_id} knows")


def _judge_link(world: World, link: Link) -> None:
    if link.closed:
        return
    talk = link.conversation
    owed = [*talk._pings, *talk._peeks, *talk._dropping, *world.asked.get(link, ())]
    if owed:
        raise Violation(f"{link.replica_id} has not answered {owed}")


def run_all(seeds: range) -> Counter[str]:
    """Play schedules; what all of them have met.

    Raises:
        Violation: with the seed that brings it out.
    """
    met: Counter[str] = Counter()
    for seed in seeds:
        try:
            met += play(seed)
        except Exception as failure:
            raise Violation(f"seed {seed}: {failure}") from failure
    return met


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int((*sys.argv, "1")[2])
    sys.stdout.write(f"{dict(run_all(range(first, first + count)))}\n")
