"""Finding the replicas of an environment by their entries in the catalog.

Promise: any process that opens the environment finds a replica's process through the replica's entry. Both sides of a
connection verify each other (`compute.transport.frames`). Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import is_gone, is_here, seems_alive
from mzsql.catalog.objects import Replica, ReplicaProcess
from mzsql.compute.transport.frames import Address, Hello
from mzsql.compute.transport.link import Found, answers, found_at, usage_at
from mzsql.compute.transport.usage import Usage
from mzsql.persist import Clock

#: Seconds after which a silent process on another machine counts as gone, so that its replica may be taken over.
TAKEN_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
#: At most so many replicas are asked at the same time.
_ASKED_AT_ONCE = 32

T = TypeVar("T")


def address_of(process: ReplicaProcess) -> Address:
    """Where a replica's process listens, with the secret to connect by."""
    return Address(process.host, process.port, process.secret)


def hello_of(env: Environment, replica_id: str, epoch: int | None) -> Hello:
    """The first message to a replica: with a leader's ``epoch`` to command it, with None to only ask whether it is
    there.
    """
    return Hello(env.id, env.build, replica_id, epoch, b"", b"")


def is_free(replica: Replica, environment_id: str, build: str, clock: Clock) -> bool:
    """Whether no process runs a replica any more, as far as can be told from here. Takes up to `TAKEN_SECONDS` where
    that is unsure.

    A process that answers runs it, whatever it answers. So does one of this machine that exists but does not answer: it
    may be suspended. One on another machine that stays silent counts as gone.
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
    """Why a replica's process takes no commands from here; None where it would. Takes seconds where that process hangs."""
    process = replica.process
    if process is None:
        return "no process runs it"
    if is_gone(process.who):
        return f"its process ({process.who}) has ended"
    return answers(address_of(process), hello_of(env, replica.id, None))


def trouble(env: Environment, replica: Replica) -> str | None:
    """Why a replica does not work, as seen by a process that does not command it; None where it does, or has nothing to
    do.
    """
    state = env.catalog.state
    cluster = state.clusters[replica.cluster_id]
    used = any(item.cluster == cluster.name for item in state.maintained)
    if replica not in state.working(replica.cluster_id):
        return "no process runs it"
    if used and not seems_alive(state.lease, env.clock.now_ms()):
        return "no process leads"
    return None if replica.process is None else unreachable(env, replica)


def usage_of(env: Environment, replica: Replica) -> Usage | None:
    """The CPU, memory and disk that a replica's process uses; None where there is none, or it does not answer."""
    process = replica.process
    if process is None or is_gone(process.who):
        return None
    return usage_at(address_of(process), hello_of(env, replica.id, None))


def about_each(replicas: Iterable[Replica], ask: Callable[[Replica], T]) -> list[tuple[Replica, T]]:
    """The answer about each replica. Replicas in processes of their own are asked in parallel, so that a hanging one delays no other."""
    all_ = list(replicas)
    if sum(one.process is not None for one in all_) < 2:
        return [(one, ask(one)) for one in all_]
    with ThreadPoolExecutor(min(len(all_), _ASKED_AT_ONCE), "mzsql-replicas") as threads:
        return list(zip(all_, threads.map(ask, all_), strict=True))
