"""Decides what a dataflow does about a view that another replica of its cluster writes as well.

Promise: replicas do the same work, and what is written first counts; so on one machine a second replica would only take
the processors from the first. A dataflow *stands by* where another replica has written all that its own steps have
made. Then it gives the other `PATIENCE` seconds for each change of its inputs, and takes over, with one step over
everything since, what is not written by then: because the other is dead, hangs, fails, or is slower. Its arrangements
follow every `FOLLOW_SECONDS`, with one step over what was written meanwhile, so that taking over is soon done and holds
move on. Whoever wrote last stands by for nobody: replicas that begin together both step until one has lost. One that is started
anew stands by at first, since another one has probably written meanwhile, whose steps are not to be disturbed. One no longer does
that took over `VAIN_WAITS` times without anything written by others in between, though its steps had no rows to write.

What is told of others (`written`, `others`) may be late; then a step is made in vain, and what is written twice is
dropped. So this decides who works, never what a view contains. Pure: functions of a state, the time and frontiers.
"""

from __future__ import annotations

import enum

import msgspec

from mzsql.repr.frontier import Timestamp

#: How long another replica may take, in seconds, to write what its inputs have, before this one does.
PATIENCE = 0.2
#: For how many seconds the arrangements may be behind what another replica has written.
FOLLOW_SECONDS = 2.0
#: After so many waits in vain, one after another, nobody is waited for. A replica that lives says within a second how far it is, also
#: where there was nothing to write.
VAIN_WAITS = 6


class Standby(msgspec.Struct, frozen=True):
    """What a dataflow has made itself, and what it waits for.

    Attributes:
        wrote: up to where it has written itself; 0 where it began with an output that was there, by another replica or before a restart.
        made: up to where its own steps have gone.
        awaited: up to where the other replica is to write next; None if nothing is waited for.
        awaited_at: the monotonic time at which that was seen.
        behind_at: the monotonic time at which it was seen that the arrangements are behind; None if they are not.
        seen: how far others had written when that was last looked at.
        vain: how often it has taken over since that moved.
    """

    wrote: Timestamp = 0
    made: Timestamp = 0
    awaited: Timestamp | None = None
    awaited_at: float = 0.0
    behind_at: float | None = None
    seen: Timestamp = 0
    vain: int = 0


class Does(enum.Enum):
    """What the dataflow does now."""

    #: steps, as nobody has written what it would make
    STEP = "step"
    #: asks the log how far the others are, and steps if they have not written what is awaited
    TAKE_OVER = "take over"
    #: brings its arrangements to where others have written
    FOLLOW = "follow"
    #: goes on from where others have written, without a step
    GO_ON = "go on"
    WAIT = "wait"


def stands_by(standby: Standby, others: Timestamp) -> bool:
    """Whether other replicas, which have written up to `others`, have written all that it has."""
    return others >= standby.wrote


def stepped(standby: Standby, upper: Timestamp, does: Does, *, empty: bool) -> Standby:
    """After a step of its own up to `upper`. One that followed, or had nothing to do, is no reason to go on before others, unless
    these seem to be gone.
    """
    after = does is Does.FOLLOW or (empty and standby.vain < VAIN_WAITS)
    wrote = standby.wrote if after else max(standby.wrote, upper)
    return Standby(wrote, max(standby.made, upper), seen=standby.seen, vain=standby.vain)


def decide(
    standby: Standby,
    now: float,
    *,
    inputs: Timestamp,
    frontier: Timestamp,
    written: Timestamp,
    others: Timestamp,
) -> tuple[Standby, Does, float]:
    """What a dataflow that no thread works at does now.

    Args:
        standby: its state.
        now: the monotonic time.
        inputs: how far its inputs are complete.
        frontier: how far it has told that it is.
        written: how far its output is known to be written.
        others: how far other replicas have written it, as far as is known.

    Returns:
        Its state, what it does, and after how many seconds to decide again at the latest, if it waits.
    """
    if others != standby.seen:
        standby = msgspec.structs.replace(standby, seen=others, vain=0)
    behind = standby.made < written
    if behind != (standby.behind_at is not None):
        standby = msgspec.structs.replace(standby, behind_at=now if behind else None)
    follows = None if standby.behind_at is None else standby.behind_at + FOLLOW_SECONDS - now
    if not stands_by(standby, others):
        standby = msgspec.structs.replace(standby, awaited=None)
        if frontier < inputs:
            return standby, Does.STEP, 0.0
        takes = None
    else:
        standby = _awaiting(standby, now, inputs, written)
        takes = None if standby.awaited is None else standby.awaited_at + PATIENCE - now
    if takes is not None and takes <= 0:
        vain = min(standby.vain + 1, VAIN_WAITS)
        return msgspec.structs.replace(standby, vain=vain), Does.TAKE_OVER, 0.0
    if follows is not None and follows <= 0:
        return standby, Does.FOLLOW, 0.0
    does = Does.GO_ON if frontier < written else Does.WAIT
    return standby, does, min(one for one in (takes, follows, FOLLOW_SECONDS) if one is not None)


def _awaiting(standby: Standby, now: float, inputs: Timestamp, written: Timestamp) -> Standby:
    """Where what was awaited is written, what the inputs have since is awaited next."""
    if standby.awaited is not None and written >= standby.awaited:
        standby = msgspec.structs.replace(standby, awaited=None)
    if standby.awaited is None and written < inputs:
        standby = msgspec.structs.replace(standby, awaited=inputs, awaited_at=now)
    return standby
