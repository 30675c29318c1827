"""Faults planted in the protocol's two sides, each of which some schedule of `simulation_protocol_run` has to bring out.

All 24 are found by the seeds in `FOUND_BY`, 16 of them within 20. A mutant is what a method does instead: made from it, and put in its
place while schedules are played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from simulation_protocol_run import play

from mzsql.compute import protocol as p
from mzsql.compute.controller import client
from mzsql.compute.controller.client import ReplicaClient
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.controller.dataflow_state import DataflowState
from mzsql.compute.transport import reconciled
from mzsql.compute.transport.conversation import Conversation
from mzsql.compute.transport.history import CommandHistory
from mzsql.compute.transport.reconciled import ReconciledReplica
from mzsql.repr.ids import GlobalId

Method: TypeAlias = Callable[..., Any]


def _forgets_no_drop(method: Method) -> Method:
    def add(self: CommandHistory, command: p.Command) -> None:
        if not isinstance(command, p.DropDataflow):
            method(self, command)

    return add


def _never_initialized(method: Method) -> Method:
    def commands(self: CommandHistory) -> list[p.Command]:
        return [one for one in method(self) if not isinstance(one, p.InitializationComplete)]

    return commands


def _initialized_first(method: Method) -> Method:
    def commands(self: CommandHistory) -> list[p.Command]:
        return sorted(method(self), key=lambda one: not isinstance(one, p.InitializationComplete))

    return commands


def _never_parted(method: Method) -> Method:
    def end(self: Conversation, why: str) -> list[p.Response]:
        return [one for one in method(self, why) if not isinstance(one, p.Parted)]

    return end


def _drops_stay(method: Method) -> Method:
    def end(self: Conversation, why: str) -> list[p.Response]:
        return [one for one in method(self, why) if not isinstance(one, p.Status)]

    return end


def _peeks_stay(method: Method) -> Method:
    def end(self: Conversation, why: str) -> list[p.Response]:
        return [one for one in method(self, why) if not isinstance(one, p.PeekResponse)]

    return end


def _takes_of_anyone(method: Method) -> Method:
    def take(self: ReconciledReplica, command: p.Command, respond: p.Respond) -> None:
        del respond
        method(self, command, self._respond)

    return take


def _claims_nothing(method: Method) -> Method:
    def meet(self: ReconciledReplica, respond: p.Respond) -> None:
        method(self, respond)
        self._unclaimed = set()

    return meet


def _tells_all(method: Method) -> Method:
    def meet(self: ReconciledReplica, respond: p.Respond) -> None:
        adopted = self._adopted
        method(self, respond)
        self._adopted = adopted

    return meet


def _waits_on(method: Method) -> Method:
    def meet(self: ReconciledReplica, respond: p.Respond) -> None:
        waiting = dict(self._waiting)
        method(self, respond)
        self._waiting.update(waiting)

    return meet


def _any_plan(_: Method) -> Method:
    return lambda self, command: not self.dropping and not self.refused and bool(command)


def _nothing_in_the_way(_: Method) -> Method:
    return lambda *_: False


def _nothing(_: Method) -> Method:
    return lambda *_: None


def _drops_what_is_read(_: Method) -> Method:
    return lambda *_: False


def _lets_all_go(_: Method) -> Method:
    def let_go(self: ReplicaClient, gid: str, since: int) -> None:
        known = self._dataflows.get(gid)
        for hold in [] if known is None else known.holds:
            hold.downgrade(since + 5)

    return let_go


def _holds_for_nobody(method: Method) -> Method:
    def stands(self: ReplicaClient, status: p.Status) -> None:
        method(self, status)
        known = self._dataflows.get(status.object_id)
        for hold in [] if known is None else known.holds:
            hold.release()

    return stands


def _no_drops(_: Method) -> Method:
    return lambda *_: None


def _none_left(_: Method) -> Any:
    return property(lambda _: ())


def _may_lack_all(_: Method) -> Method:
    return lambda *_: True


def _sources_alone(_: Method) -> Method:
    def stored(
        command: p.CreateDataflow, known: Mapping[GlobalId, DataflowState]
    ) -> tuple[GlobalId, ...]:
        del known
        return command.dataflow.sources

    return stored


def _no_compactions(_: Method) -> Method:
    def compactions(self: ReplicaClient, present: int) -> list[p.AllowCompaction]:
        del self, present
        return []

    return compactions


def _confirmed_unasked(_: Method) -> Method:
    return lambda *_: True


#: By name: where the method is, and what is made of it.
MUTANTS: dict[str, tuple[Any, str, Callable[[Method], Method]]] = {
    "a drop stays in the history": (CommandHistory, "add", _forgets_no_drop),
    "initialization is never complete": (CommandHistory, "commands", _never_initialized),
    "initialization is complete at once": (CommandHistory, "commands", _initialized_first),
    "a lost way is not told of": (Conversation, "end", _never_parted),
    "a drop is owed for ever": (Conversation, "end", _drops_stay),
    "a peek is owed for ever": (Conversation, "end", _peeks_stay),
    "commands of anyone are taken": (ReconciledReplica, "take", _takes_of_anyone),
    "what nobody wants goes on": (ReconciledReplica, "meet", _claims_nothing),
    "what is told is told to whoever asks next": (ReconciledReplica, "meet", _tells_all),
    "what waited for another controller is made": (ReconciledReplica, "meet", _waits_on),
    "any plan is as good": (reconciled._Known, "runs", _any_plan),
    "an index that is made anew is read": (ReconciledReplica, "_in_the_way", _nothing_in_the_way),
    "what waits is never made": (ReconciledReplica, "_make_what_waits", _nothing),
    "an index that is read is dropped": (ReplicaClient, "_is_read", _drops_what_is_read),
    "more is let go of than can be": (ReplicaClient, "_let_go", _lets_all_go),
    "nothing is let go of": (ReplicaClient, "_let_go", _nothing),
    "holds end when a replica tells of itself": (ReplicaClient, "_stands", _holds_for_nobody),
    "indexes keep all": (ReplicaClient, "compactions", _no_compactions),
    "whoever has led lets go of history": (ComputeController, "_is_confirmed", _confirmed_unasked),
    "nothing is dropped": (ReplicaClient, "drop", _no_drops),
    "views may lack what is not there": (ReplicaClient, "_may_lack", _may_lack_all),
    "what was given up holds on": (ReplicaClient, "release", _nothing),
    "rows of a replica that moves stay": (ReplicaClient, "dataflows", _none_left),
    "what indexes are made of is not held": (client, "stored_below", _sources_alone),
}

#: The first seed that brings each out.
FOUND_BY: dict[str, int] = {
    "a drop stays in the history": 8,
    "initialization is never complete": 3,
    "initialization is complete at once": 12,
    "a lost way is not told of": 0,
    "a drop is owed for ever": 19,
    "a peek is owed for ever": 7,
    "commands of anyone are taken": 6,
    "what nobody wants goes on": 1,
    "what is told is told to whoever asks next": 0,
    "what waited for another controller is made": 570,
    "any plan is as good": 23,
    "an index that is made anew is read": 151,
    "what waits is never made": 23,
    "an index that is read is dropped": 0,
    "more is let go of than can be": 19,
    "nothing is let go of": 3,
    "holds end when a replica tells of itself": 26,
    "indexes keep all": 0,
    "whoever has led lets go of history": 7587,
    "nothing is dropped": 0,
    "views may lack what is not there": 3,
    "what was given up holds on": 19,
    "rows of a replica that moves stay": 114,
    "what indexes are made of is not held": 1061,
}


def is_found(name: str, seed: int) -> bool:
    """Whether a schedule brings a fault out."""
    owner, method, made = MUTANTS[name]
    whole = getattr(owner, method)
    setattr(owner, method, made(whole))
    try:
        play(seed)
    except Exception:
        return True
    finally:
        setattr(owner, method, whole)
    return False
