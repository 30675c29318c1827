"""Where the replicas of an environment run, as its catalog has it.

Promise: a process that runs a replica is found by the replica's entry in the catalog, in any process that opens the environment; who it is
talking to, either side makes sure of (`compute.transport.frames`). Nothing here writes.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import is_gone, is_here, seems_alive
from mzsql.catalog.objects import Replica, ReplicaProcess
from mzsql.compute.transport.frames import Address, Hello
from mzsql.compute.transport.link import Found, answers, found_at, usage_at
from mzsql.compute.transport.usage import Usage
from mzsql.persist import Clock

#: A process of another machine that has a replica's name, and has not answered for so long, has it no more, in seconds.
TAKEN_SECONDS = 10.0
_PAUSE_SECONDS = 0.5


def address_of(process: ReplicaProcess) -> Address:
    """Where a process listens."""
    return Address(process.host, process.port, process.secret)


def hello_of(env: Environment, replica_id: str, epoch: int | None) -> Hello:
    """What this process says to a replica: to command it in a leader's `epoch`, or with None to see that it is there."""
    return Hello(env.id, env.build, replica_id, epoch, b"", b"")


def is_free(replica: Replica, environment_id: str, build: str, clock: Clock) -> bool:
    """Whether no process has a replica's name any more, as far as can be told from here. Takes `TAKEN_SECONDS` where that is unsure.

    One that answers has it, whatever it answers; so has one of this machine that runs and does not answer (it may have been stopped).
    One of another machine that has not answered for so long is taken to be gone.
    """
    process = replica.process
    if process is None or is_gone(process.who):
        return True
    hello = Hello(environment_id, build, replica.id, None, b"", b"")
    until = clock.monotonic() + TAKEN_SECONDS
    while (found := found_at(address_of(process), hello)) is Found.SILENCE:
        if clock.monotonic() >= until:
            return is_gone(process.who) or not is_here(process.who)
        clock.sleep(_PAUSE_SECONDS)
    return found is Found.NOBODY


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


def usage_of(env: Environment, replica: Replica) -> Usage | None:
    """What the process of a replica takes of its machine; None where it has none, or does not say."""
    process = replica.process
    if process is None or is_gone(process.who):
        return None
    return usage_at(address_of(process), hello_of(env, replica.id, None))
