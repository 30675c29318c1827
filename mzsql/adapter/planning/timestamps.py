"""Timestamp selection: at which time a query reads (https://materialize.com/docs/get-started/isolation-level/).

Promise: `determine` is a pure function from a `Question` to a `Determination`, which has the timestamp and the reasons;
`Timestamps` does the IO around it. A strict serializable read is at a timestamp asked of the oracle after the query
arrived. A serializable one is at the latest time that is already complete; where inputs are complete ahead of time
(between refreshes) at the oracle's. A strong session serializable one is at that time, but not beyond the oracle's, nor
before what the session itself has seen or written. AS OF reads at the given time, or fails with an error that says what
can be read. Constants have no timestamp. A timestamp beyond the oracle's is waited for (`Timestamps.hold_back`): a
result returned before the oracle got there could be contradicted by a later read at an earlier time.
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

#: Seconds between two questions to the oracle while a statement waits for a timestamp.
_ASK_SECONDS = 0.05
#: PostgreSQL's weaker isolation levels are treated as serializable.
_STRONGER: dict[str, Isolation] = {
    "strict serializable": "strict serializable",
    "strong session serializable": "strong session serializable",
}


class SourceFrontiers(msgspec.Struct, frozen=True):
    """One input: it is readable from ``since`` on, and complete below ``upper``."""

    id: GlobalId
    since: Frontier
    upper: Frontier


class Question(msgspec.Struct, frozen=True):
    """Everything that a timestamp is chosen from.

    Attributes:
        isolation: the session's isolation level.
        sources: the stored inputs with their frontiers, in any order.
        oracle_read_ts: the oracle's read timestamp, asked for after the query arrived; None where it was not asked.
        time_dependent: whether the query calls ``mz_now()``, so that it has a timestamp even without inputs.
        as_of: the timestamp of AS OF.
        at_least: whether it was AS OF AT LEAST.
        session_ts: the latest timestamp that the session has read or written at.
        linear: whether every acknowledged write must be seen whatever the isolation level (the reads of UPDATE, DELETE
            and the like).
        present: the present time as far as this process knows; None where it was not asked.
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
        """The latest time at which all inputs are complete; None: complete at every time."""
        return _last_below(meet(*(source.upper for source in self.sources)))

    @property
    def is_ahead(self) -> bool:
        """Whether the inputs are complete beyond the present (between refreshes, or for ever), so that their frontier
        is no time to read at.
        """
        complete = self.complete
        return complete is None or (self.present is not None and complete > self.present)


def _last_below(upper: Frontier) -> Timestamp | None:
    return None if upper is None else max(0, upper - 1)


class Determination(msgspec.Struct, frozen=True):
    """A query's timestamp, and what it was chosen from.

    Attributes:
        timestamp: the timestamp; None for a query that depends on none.
        timeline: its timeline; None without a timestamp.
        isolation: the isolation level.
        since: the earliest time at which all inputs are readable.
        upper: the time below which all inputs are complete.
        oracle_read_ts: the oracle's read timestamp; None where it was not asked.
        sources: the inputs.
        held_back: whether the answer must wait until the oracle has reached the timestamp.
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
        """The latest time at which all inputs are complete; None: complete at every time."""
        return _last_below(self.upper)

    @property
    def can_respond_immediately(self) -> bool:
        """Whether the inputs are complete at the timestamp, as far as is known, and the oracle has reached it."""
        if self.timestamp is None:
            return True
        complete = self.upper is None or self.timestamp < self.upper
        return complete and not self.held_back


def needs_oracle(question: Question) -> bool:
    """Whether the choice depends on the oracle: not for constants and AS OF, nor where a complete time is enough."""
    if question.as_of is not None or not (question.sources or question.time_dependent):
        return False
    return question.linear or question.isolation != "serializable" or question.is_ahead


def determine(question: Question) -> Determination:
    """Choose the timestamp.

    Starting from the minimum it is advanced to each of these that applies: the time of AS OF; the inputs' since (where
    AS OF names an exact time before it, the query fails); the oracle's read timestamp, for strict serializable reads;
    the latest complete time, for serializable ones (or the oracle's, if that is less and the complete time is in the
    future); for strong session serializable ones the lesser of those two, and what the session has seen.

    Raises:
        InvalidParameter: an input is not readable at the time of AS OF any more.
        NotReadable: an input was dropped.
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
        # Inputs that are complete beyond the present are so for what nobody has written yet; the answer would be held
        # back until then.
        complete = min(complete, oracle_ts)
    if question.isolation == "strict serializable" or question.linear or not question.sources:
        chosen = oracle_ts
    elif question.isolation == "serializable":
        chosen = complete
    else:
        assert complete is not None
        assert oracle_ts is not None
        # Not before what the session has seen, its own writes among it, whatever the inputs are complete to.
        chosen = max(min(complete, oracle_ts), question.session_ts)
    assert chosen is not None, "the oracle was not asked"
    return max(chosen, since)


class Timestamps:
    """Chooses the timestamps of one process's queries. Thread-safe."""

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
        """Collect what a query's timestamp is chosen from, as of now.

        Args:
            session: gives the isolation level.
            stored: the inputs with a history: tables, materialized views.
            time_dependent: whether the query calls ``mz_now()``.
            as_of: the timestamp of AS OF.
            at_least: whether a later one will do.
            linear: whether every acknowledged write must be seen whatever the isolation level.
            current_uppers: whether to ask for frontiers, and the oracle, even where the choice does not depend on them
                (for EXPLAIN).
        """
        # Where nobody writes the oracle stands still, and `mz_now()` would with it.
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
            present=self._env.oracle.present_ms() if sources and wants_uppers else None,
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
        """The timestamp of a query over ``stored`` that arrives now (arguments as in `question`); waits until the
        oracle has reached it.

        The inputs need not be complete at it yet: see `Inputs.wait`. From now on the session has seen the timestamp.

        Raises:
            InvalidParameter: an input is not readable at the time of AS OF any more.
            NotReadable: the timestamp is further ahead than the statement may wait.
            QueryCanceled: the statement was canceled or timed out first.
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
        """Wait until the oracle has reached ``ts``, so that no later read can be at an earlier time.

        Time does not advance where nobody writes: once the clock has reached ``ts``, this completes it in the log and
        applies it to the oracle, as a writer would.

        Raises:
            NotReadable: ``ts`` is more than ``timeout`` seconds ahead of the clock, or more than the statement's
                remaining time.
            QueryCanceled: the statement was canceled or timed out first.
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
