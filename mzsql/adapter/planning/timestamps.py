"""Timestamp selection: at which time a query reads (https://materialize.com/docs/get-started/isolation-level/).

Promise: `determine` is a pure function from what was asked and what was seen to a `Determination`, which says the time and why.
`Timestamps` is the IO around it. A strictly serializable read is at a time asked of the oracle after the query came; a serializable one
at the latest time that is complete already, but where inputs are complete ahead of time (between refreshes), at the oracle's; a strong
session serializable one at that time, though neither beyond the oracle's nor before what the session itself has seen or written. AS OF is
the time asked for, or an error that says what can be read. Constants have no time. A time beyond the oracle's is waited for
(`Timestamps.hold_back`): a result that reached a client before the oracle got there could be contradicted by a later read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.session import Session
from mzsql.oracle import EPOCH_MS
from mzsql.repr.errors import InvalidParameter, NotReadable
from mzsql.repr.frontier import Frontier, Timestamp, join, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current

Isolation = Literal["strict serializable", "strong session serializable", "serializable"]

#: While it waits for a time, a statement asks the oracle again so often, in seconds.
_ASK_SECONDS = 0.05
#: All isolation levels below serializable are given serializable.
_STRONGER: dict[str, Isolation] = {
    "strict serializable": "strict serializable",
    "strong session serializable": "strong session serializable",
}


class SourceFrontiers(msgspec.Struct, frozen=True):
    """One input and the times it can be read at: from ``since`` on, and at once below ``upper``."""

    id: GlobalId
    since: Frontier
    upper: Frontier


class Question(msgspec.Struct, frozen=True):
    """All that a timestamp is chosen from.

    Attributes:
        isolation: the session's.
        sources: the stored inputs with their frontiers; in no order.
        oracle_read_ts: the oracle's answer, asked for after the query came; None where nobody asked.
        time_dependent: whether the query says ``mz_now()``: then it has a time even without inputs.
        as_of: the time of AS OF.
        at_least: whether it was AS OF AT LEAST.
        session_ts: the latest time that the session has read at or written at.
        linear: whether every acknowledged write must be seen whatever the isolation (UPDATE and its like).
        present: what time it is, as far as this process knows; None where nobody looked.
    """

    isolation: Isolation
    sources: tuple[SourceFrontiers, ...] = ()
    oracle_read_ts: Timestamp | None = None
    time_dependent: bool = False
    as_of: Timestamp | None = None
    at_least: bool = False
    session_ts: Timestamp = 0
    linear: bool = False
    present: Timestamp | None = None

    @property
    def complete(self) -> Timestamp | None:
        """The latest time at which all inputs are complete; None: at every one."""
        return _last_below(meet(*(source.upper for source in self.sources)))

    @property
    def is_ahead(self) -> bool:
        """Whether the inputs are complete at times that have not come yet, as between refreshes, or for ever: no time to read at."""
        complete = self.complete
        return complete is None or (self.present is not None and complete > self.present)


def _last_below(upper: Frontier) -> Timestamp | None:
    return None if upper is None else max(0, upper - 1)


class Determination(msgspec.Struct, frozen=True):
    """The time of a query, and what it was chosen from.

    Attributes:
        timestamp: the time; None for a query that depends on none.
        timeline: the timeline that it is on; None where there is no time.
        isolation: what was promised.
        since: the earliest time at which all inputs can be read.
        upper: the time before which all inputs are complete.
        oracle_read_ts: the oracle's; None where it was not asked.
        sources: the inputs.
        held_back: whether the answer must wait until the oracle has reached the time.
    """

    timestamp: Timestamp | None
    timeline: str | None
    isolation: Isolation
    since: Frontier
    upper: Frontier
    oracle_read_ts: Timestamp | None
    sources: tuple[SourceFrontiers, ...]
    held_back: bool = False

    @property
    def largest_not_in_advance_of_upper(self) -> Timestamp | None:
        """The latest time at which all inputs are complete; None: at every one."""
        return _last_below(self.upper)

    @property
    def can_respond_immediately(self) -> bool:
        """Whether the inputs are complete at the time, as far as was seen, and the oracle has reached it."""
        if self.timestamp is None:
            return True
        complete = self.upper is None or self.timestamp < self.upper
        return complete and not self.held_back


def needs_oracle(question: Question) -> bool:
    """Whether the answer to a question depends on the oracle: not for constants and AS OF, nor where a complete time is enough."""
    if question.as_of is not None or not (question.sources or question.time_dependent):
        return False
    return question.linear or question.isolation != "serializable" or question.is_ahead


def determine(question: Question) -> Determination:
    """Choose the timestamp.

    From the minimum on, it is brought forward to each of: the time of AS OF; the inputs' since (unless AS OF names the time exactly); the
    oracle's read timestamp, for strict serializable reads; the latest complete time, for serializable ones (the lesser of those two
    where that has not come yet); the lesser of those two and what the session has seen, for strong session serializable ones.

    Raises:
        InvalidParameter: an input no longer has the time of AS OF.
    """
    since = join(*(source.since for source in question.sources))
    upper = meet(*(source.upper for source in question.sources))
    timed = bool(question.sources) or question.time_dependent
    timestamp = _chosen(question, since) if timed else None
    oracle_ts = question.oracle_read_ts
    held_back = (
        timestamp is not None
        and oracle_ts is not None
        and timestamp > oracle_ts
        and (question.isolation != "serializable" or question.linear)
    )
    return Determination(
        timestamp,
        EPOCH_MS if timestamp is not None else None,
        question.isolation,
        since,
        upper,
        oracle_ts,
        question.sources,
        held_back,
    )


def _chosen(question: Question, since: Frontier) -> Timestamp:
    if since is None:
        raise NotReadable("an input of the query was dropped and cannot be read at any time")
    if question.as_of is not None:
        if question.at_least:
            return max(question.as_of, since)
        if question.as_of < since:
            raise InvalidParameter(
                f"Timestamp ({question.as_of}) is not valid for all inputs: [{since}]",
                detail=f"The earliest time at which all of them can be read is {since}.",
            )
        return question.as_of
    oracle_ts = question.oracle_read_ts
    complete = question.complete
    if complete is None:
        complete = oracle_ts
    elif question.is_ahead:
        assert oracle_ts is not None
        complete = min(complete, oracle_ts)
    if question.isolation == "strict serializable" or question.linear or not question.sources:
        chosen = oracle_ts
    elif question.isolation == "serializable":
        chosen = complete
    else:
        assert complete is not None
        assert oracle_ts is not None
        chosen = max(min(complete, oracle_ts), question.session_ts)
    assert chosen is not None, "the oracle was not asked"
    return max(chosen, since)


class Timestamps:
    """Chooses the times of one process's queries. Thread-safe."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def question(
        self,
        session: Session,
        stored: Iterable[GlobalId],
        *,
        time_dependent: bool = False,
        as_of: Timestamp | None = None,
        at_least: bool = False,
        linear: bool = False,
        current_uppers: bool = False,
    ) -> Question:
        """What a query's time is chosen from, asked for now.

        Args:
            session: whose isolation counts.
            stored: the inputs that have contents at times: tables, materialized views.
            time_dependent: whether the query says ``mz_now()``.
            as_of: the time of AS OF.
            at_least: whether a later one will do.
            linear: whether every acknowledged write must be seen whatever the isolation.
            current_uppers: whether frontiers are asked for that the choice does not depend on (for EXPLAIN), and the oracle too.
        """
        if time_dependent and as_of is None:
            self._env.pass_time()
        isolation = _STRONGER.get(session.get("transaction_isolation"), "serializable")
        wants_uppers = isolation != "strict serializable" and as_of is None and not linear
        collections = self._env.collections
        upper_of = collections.upper if wants_uppers or current_uppers else collections.known_upper
        sources = tuple(
            SourceFrontiers(gid, collections.since(gid), upper_of(gid)) for gid in sorted(stored)
        )
        question = Question(
            isolation,
            sources,
            time_dependent=time_dependent,
            as_of=as_of,
            at_least=at_least,
            session_ts=session.seen_ts,
            linear=linear,
            present=self._env.oracle.present_ms(),
        )
        if needs_oracle(question) or (current_uppers and (sources or time_dependent)):
            question = msgspec.structs.replace(question, oracle_read_ts=self._env.fresh_timestamp())
        return question

    def determine(
        self,
        session: Session,
        stored: Iterable[GlobalId],
        *,
        time_dependent: bool = False,
        as_of: Timestamp | None = None,
        at_least: bool = False,
        linear: bool = False,
    ) -> Determination:
        """The time of a query over ``stored`` that came just now, waited for where the oracle has not reached it (arguments as `question`).

        The inputs need not be complete at it yet: see `Peeker.wait`. The session has seen the time from now on.

        Raises:
            InvalidParameter: an input no longer has the time of AS OF.
            NotReadable: the time lies further ahead than the statement may wait.
            QueryCanceled: the statement was cancelled, or its time was over first.
        """
        question = self.question(
            session,
            stored,
            time_dependent=time_dependent,
            as_of=as_of,
            at_least=at_least,
            linear=linear,
        )
        done = determine(question)
        named = as_of is not None and bool(done.sources)
        if done.timestamp is not None and (done.held_back or named):
            self.hold_back(done.timestamp, session.timeout)
        if done.timestamp is not None and as_of is None:
            session.saw(done.timestamp)
        return done

    def hold_back(self, ts: Timestamp, timeout: float) -> None:
        """Wait until the oracle has reached ``ts``, that is until no later read can be at an earlier time.

        Where nobody writes nobody moves time: once the clock has reached ``ts``, this completes it in the log and tells the oracle, as any
        writer would.

        Raises:
            NotReadable: ``ts`` lies further ahead of the clock than ``timeout`` seconds, or than the statement may still take.
            QueryCanceled: the statement was cancelled, or its time was over first.
        """
        env, interrupt = self._env, current()
        left = min(timeout, interrupt.left())
        end = env.clock.monotonic() + left
        while env.oracle.read_ts() < ts:
            interrupt.check()
            ahead = (ts - env.oracle.present_ms()) / 1000
            left = end - env.clock.monotonic()
            if ahead <= 0 and not env.read_only:
                env.reach(ts)
                return
            if ahead > left or left <= 0:
                raise NotReadable(
                    f"timestamp {ts} cannot be read yet: it lies {max(ahead, 0):.1f} s ahead of the clock",
                    detail=f"The statement may wait for {max(left, 0):.1f} s.",
                    hint="Ask again later, raise statement_timeout, or leave AS OF out.",
                )
            interrupt.sleep(min(left, _ASK_SECONDS if ahead <= 0 else ahead))
        if not env.read_only and env.wal.state.upper <= ts:
            env.reach(ts)
