"""Where the replicas of an environment run, as its catalog has it.

Promise: a process that runs a replica is found by the replica's entry in the catalog, in any process that opens the environment; who it is
talking to, either side makes sure of (`compute.transport.frames`). Nothing here writes.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import is_gone, seems_alive
from mzsql.catalog.objects import Replica, ReplicaProcess
from mzsql.compute.transport.frames import Address, Hello
from mzsql.compute.transport.link import answers


def address_of(process: ReplicaProcess) -> Address:
    """Where a process listens."""
    return Address(process.host, process.port, process.secret)


def hello_of(env: Environment, replica_id: str, epoch: int | None) -> Hello:
    """What this process says to a replica: to command it in a leader's `epoch`, or with None to see that it is there."""
    return Hello(env.id, env.build, replica_id, epoch, b"", b"")


def unreachable(env: Environment, replica: Replica) -> str | None:
    """Why the process of a replica takes no commands from here; None where it would. Takes seconds where it hangs."""
    process = replica.process
    if process is None:
        return "no process runs it"
    if is_gone(process.who):
        return f"its process ({process.who}) has ended"
    return answers(address_of(process), hello_of(env, replica.id, None))


def trouble(env: Environment, replica: Replica) -> str | None:
    """Why a replica does not do its work, as far as a process can tell that does not command it; None where it does, or has none."""
    state = env.catalog.state
    cluster = state.clusters[replica.cluster_id]
    used = any(item.cluster == cluster.name for item in state.maintained)
    if replica not in state.working(replica.cluster_id):
        return "no process runs it"
    if used and not seems_alive(state.lease, env.clock.now_ms()):
        return "no process leads"
    return None if replica.process is None else unreachable(env, replica)
