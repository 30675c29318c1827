"""A step's statement, rendered once and run at many times.

Promise: at given times a template means what the statement rendered for these times means. Its text is written once
for each engine and each set of inputs that may have updates (all of them, for most steps in process), because
building, copying and writing an AST costs more than a small step takes to run. The times in the text are stand-ins:
numbers that occur nowhere else in it. If a user's literal happens to equal one, the statement is written anew for
each step.

Trade-off: a dataflow of n inputs can have 2^n such sets; the `TEMPLATES` most recently used are kept.
docs/architecture.md, "The way of an update through a dataflow", step 2.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql, to_sql_with_numbers
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.nodes import nodes, relations_in
from mzsql.render.kept import Kept
from mzsql.render.rendered import Lookup, Step
from mzsql.render.rewrites.cut import Piece, pieces
from mzsql.render.rewrites.lean import Relation, columns_read, lean, widened
from mzsql.render.rewrites.relevant import satisfied
from mzsql.render.rewrites.straight import Straight, taken_out
from mzsql.render.times import LOWER, UPPER
from mzsql.repr.frontier import Timestamp
from mzsql.repr.garbage import undisturbed
from mzsql.repr.lazy import lazy_property

#: For how many sets of changed inputs statements are kept, for each dataflow.
TEMPLATES = 32
#: How many lean texts a template keeps, each for one set of relations that have rows, besides one that serves any set.
LEANS = 24
#: For how many sets it is kept how often they came.
SETS = 64
#: A longer text gets no lean version, because simplifying it would take seconds.
LEAN_LENGTH = 200_000


def at(template: exp.Expression, times: Mapping[Timestamp, Timestamp]) -> exp.Expression:
    """A copy of a statement with the stand-ins replaced by times."""
    texts = {str(stand_in): time for stand_in, time in times.items()}
    statement = template.copy()
    for literal in list(statement.find_all(exp.Literal)):
        if not literal.is_string and literal.this in texts:
            literal.replace(s.num(texts[literal.this]))
    return statement


def step_times(lower: Timestamp, upper: Timestamp) -> dict[Timestamp, Timestamp]:
    """The times that a step's stand-ins stand for."""
    return {LOWER: lower, LOWER - 1: lower - 1, UPPER: upper}


class Text:
    """A statement's text with stand-ins for its times.

    Attributes:
        statement: the statement.
        recurs: whether it is known that it will be run repeatedly.
    """

    def __init__(
        self, statement: exp.Expression | Kept, engine: Engine, *, recurs: bool = False
    ) -> None:
        self.kept = statement if isinstance(statement, Kept) else Kept(statement)
        self.recurs = recurs
        self._engine = engine

    @property
    def statement(self) -> exp.Expression:
        """The statement; must not be modified."""
        return self.kept.statement

    @lazy_property
    def _written(self) -> str | None:
        """The text; None if a stand-in also occurs in it as something else."""
        text, numbers = to_sql_with_numbers(self.statement, self._engine)
        same = all(text.count(one) == numbers.get(one, 0) for one in _NAMES)
        return text if same else None

    @lazy_property
    def with_parameters(self) -> str | None:
        """The text with named parameters for its times (`parameters`); None if it must be written anew for each step.

        Each place has a parameter of its own, because DuckDB plans a prepared statement anew at each run if a
        parameter occurs twice.
        """
        text = self._written
        if text is None:
            return None
        numbers = itertools.count()
        return _STAND_INS.sub(lambda found: f"${_NAMES[found[0]]}_{next(numbers)}", text)

    @lazy_property
    def _places(self) -> tuple[tuple[str, Timestamp], ...]:
        """Each parameter, with the stand-in in whose place it is."""
        found = enumerate(_STAND_INS.findall(self._written or ""))
        return tuple((f"{_NAMES[one]}_{number}", int(one)) for number, one in found)

    def parameters(self, lower: Timestamp, upper: Timestamp) -> dict[str, Timestamp]:
        """The parameters' values for the step of ``[lower, upper)``."""
        times = step_times(lower, upper)
        return {name: times[stand_in] for name, stand_in in self._places}

    def at(self, lower: Timestamp, upper: Timestamp) -> str:
        """The text for the step of ``[lower, upper)``."""
        text = self._written
        if text is None:
            return to_sql(at(self.statement, step_times(lower, upper)), self._engine)
        for stand_in, time in step_times(lower, upper).items():
            text = text.replace(str(stand_in), str(time))
        return text


#: The stand-ins of a step's text, and their names as parameters.
_NAMES = {str(LOWER): "mz_lower", str(LOWER - 1): "mz_before", str(UPPER): "mz_upper"}
_STAND_INS = re.compile("|".join(map(re.escape, _NAMES)))


class Joins(enum.Enum):
    """How Spark joins a step's updates with what they meet.

    A broadcast join runs a job for what it broadcasts before the job of the statement. If all relations are small, a
    hash join within a single task needs no extra job. If the updates are many, broadcasting them could exhaust the
    driver's memory.
    """

    #: all relations have few rows
    TOGETHER = "SHUFFLE_HASH"
    #: the updates are few, the rows that they meet are not
    STREAMED = "BROADCAST"
    #: the updates are many; Spark chooses
    OPEN = None


@dataclass(frozen=True)
class TextPiece:
    """A piece of a statement (`mzsql.render.rewrites.cut`); `name` is None for the last one."""

    name: str | None
    text: Text
    reads: tuple[str, ...]


@dataclass(frozen=True)
class LeanText:
    """A step's statement simplified for relations of which something is known.

    Attributes:
        relations: what is known.
        text: the statement; None if it has no rows.
        reads: the relations that it reads.
        straight: outputs that are rows of a relation unchanged, besides the statement's.
    """

    relations: Mapping[str, Relation]
    text: Text | None
    reads: tuple[str, ...]
    straight: tuple[Straight, ...] = ()

    @lazy_property
    def filled(self) -> frozenset[str]:
        """The relations that may have rows."""
        return _filled(self.relations)

    @lazy_property
    def length(self) -> int:
        """The characters of the text; 0 if there is none, or it must be written anew for each step."""
        return 0 if self.text is None else len(self.text.with_parameters or "")


@dataclass
class _General:
    """What was seen of the relations of a template's steps, whichever had rows, and the text for that."""

    relations: Mapping[str, Relation]
    made: LeanText | None = None
    uses: int = 0
    making: bool = False


@dataclass
class _Own:
    """The text for one set of relations that have rows, made of the general one `base`."""

    made: LeanText | None = None
    base: LeanText | None = None
    uses: int = 0
    #: after how many uses a text is made
    needed: float = 1
    making: bool = False


def _nothing(_: LeanText) -> None:
    pass


class StepTemplate:
    """A dataflow's step for one engine and one set of inputs with updates.

    Attributes:
        step: its statement (with stand-ins), outputs and inputs; None if it has no rows.
        lookups: the lookups that it needs.

    A lean text of it is for deltas of which each row meets what ``conditions`` has for it
    (`mzsql.render.rewrites.relevant`).
    """

    def __init__(
        self,
        step: Step | None,
        lookups: tuple[Lookup, ...],
        engine: Engine,
        conditions: Mapping[str, str] | None = None,
    ) -> None:
        self.step = step
        self.lookups = lookups
        self.engine = engine
        self._conditions = conditions or {}
        self._lock = threading.Lock()
        self._own: OrderedDict[frozenset[str], _Own] = OrderedDict()
        self._general: _General | None = None
        self._used = False
        self._pieces: dict[Joins, tuple[TextPiece, ...]] = {}

    def comes_again(self) -> bool:
        """Whether this was called before. A step that comes only once, such as the first change of a view, is not worth
        a lean text.
        """
        used, self._used = self._used, True
        return used

    def lean(
        self,
        relations: Mapping[str, Relation],
        later: Callable[[Callable[[], None]], None],
        made: Callable[[LeanText], None] = _nothing,
        *,
        after: int = 0,
    ) -> LeanText | None:
        """A statement that is valid for such relations; None while there is none, and then the full statement must be
        run.

        A text is made for everything seen until then, whichever relations had rows, and some more. What is left of it
        where only some relations have rows becomes a text of its own, once that pays.

        Args:
            relations: what is known of each relation that the step reads.
            later: runs the making of a text, now or later.
            made: called there with a text that was made.
            after: how many calls to see relations in before the first text is made.
        """
        key = _filled(relations)
        with self._lock:
            own = self._own_of(key)
            if own.made is not None and _covers(own.made.relations, relations):
                return own.made
            general = self._general
            base = None if general is None else general.made
            if base is not None and base.filled == key and _covers(base.relations, relations):
                return base
            if general is None or base is None or not _covers(base.relations, relations):
                # What a text was made for is not forgotten when it is made anew, so nothing else need be remembered.
                general, base = self._seen(relations), None
                others = (one.made for one in self._own.values() if one.made is not None)
                serving = next((one for one in others if _covers(one.relations, relations)), None)
            else:
                serving = self._shortest(key, base)
            general.uses += 1
            own.uses += 1
            work = self._due(key, own, general, base, serving, made, after)
        if work is not None:
            later(work)
        return serving

    def _due(
        self,
        key: frozenset[str],
        own: _Own,
        general: _General,
        base: LeanText | None,
        serving: LeanText | None,
        made: Callable[[LeanText], None],
        after: int,
    ) -> Callable[[], None] | None:
        """The making of a text that is wanted now, which is marked as being made; None if none is. The caller holds the lock."""
        if serving is None:
            if general.making or self.is_long or general.uses <= after:
                return None
            general.making = True
            return functools.partial(self._make, general, made)
        if base is None or not serving.length or own.making or own.uses < own.needed:
            return None
        own.making = True
        return functools.partial(self._narrow, key, own, base, serving.length, made)

    def _shortest(self, key: frozenset[str], base: LeanText) -> LeanText:
        """The shortest text that serves a set for which the general text `base` does."""
        # What is made of `base` is for the same values, as far as its relations have rows.
        made = (one.made for one in self._own.values() if one.base is base)
        return min(
            (base, *(one for one in made if one is not None and one.filled >= key)),
            key=lambda one: one.length,
        )

    def expect(
        self, relations: Mapping[str, Relation], made: Callable[[LeanText], None] = _nothing
    ) -> None:
        """Make a lean text for such relations, and some more, before any step has come; nothing if there is one.

        Args:
            relations: what steps will probably meet. A step that meets something else runs the full statement.
            made: called with the text.
        """
        with self._lock:
            general = self._seen(relations)
            if general.made is not None or general.making or self.is_long:
                return
            general.making = True
        self._make(general, made)

    def _own_of(self, key: frozenset[str]) -> _Own:
        own = self._own.get(key)
        if own is None:
            own = self._own[key] = _Own()
            while len(self._own) > SETS:
                self._own.popitem(last=False)
        self._own.move_to_end(key)
        return own

    def _seen(self, relations: Mapping[str, Relation]) -> _General:
        """What was seen until now, including these relations."""
        if self._general is None:
            self._general = _General(relations)
        seen = self._general.relations.items()
        self._general.relations = {name: _either(one, relations[name]) for name, one in seen}
        return self._general

    @lazy_property
    def is_long(self) -> bool:
        """Whether the text is so long that it gets no lean version."""
        return len(self.text.with_parameters or "") > LEAN_LENGTH

    @lazy_property
    def asked(self) -> dict[str, set[str]]:
        """The columns of each relation of which `lean` can use facts."""
        assert self.step is not None
        return columns_read(self.step.statement, self.step.reads)

    @undisturbed()
    def _make(self, general: _General, told: Callable[[LeanText], None]) -> None:
        assert self.step is not None
        with self._lock:
            before = {} if general.made is None else general.made.relations
            relations = {
                name: widened(one, _unless_empty(before.get(name)))
                for name, one in general.relations.items()
            }
        # If this fails it is reported once: `making` stays true, so it is not tried again at every step.
        made = self._lean_text(satisfied(self.step.statement, self._conditions), relations)
        try:
            # Before any step runs it, so that it is planned by then.
            told(made)
        finally:
            with self._lock:
                self._keep(general.made)
                general.made, general.uses, general.making = made, 0, False
                for own in self._own.values():
                    own.needed = 1

    @undisturbed()
    def _narrow(
        self,
        key: frozenset[str],
        own: _Own,
        base: LeanText,
        length: int,
        told: Callable[[LeanText], None],
    ) -> None:
        """Make what is left of a general text where only the relations of `key` have rows, if that pays by now: if they came as
        often as its length is a multiple of what it is shorter than the text that serves until then, so at once if half is left.

        Making it takes some four times the processor time that running as much text takes, but nobody waits for it. It is
        made of the general text, in which most is known already, for a fifth of what making it of the step's statement takes.
        """
        assert base.text is not None
        relations = {
            name: one if name in key else replace(one, rows=0)
            for name, one in base.relations.items()
        }
        made = self._lean_text(base.text.statement, relations, base.straight)
        saved = length - made.length
        needed = made.length / saved if saved > 0 else math.inf
        with self._lock:
            own.needed = needed
            if own.uses < needed:
                own.making = False
                return
        try:
            told(made)
        finally:
            with self._lock:
                own.made, own.base, own.making = made, base, False
                self._trim()

    def _lean_text(
        self,
        statement: exp.Expression,
        relations: Mapping[str, Relation],
        straight: tuple[Straight, ...] = (),
    ) -> LeanText:
        """A statement as it is for such relations.

        Args:
            statement: the step's, or a lean one of it.
            relations: what is known.
            straight: outputs that the statement lacks, as they are rows of a relation.
        """
        assert self.step is not None
        left = lean(statement, relations)
        if left is not None:
            left, more = taken_out(left, self.step.outputs, self.step.reads)
            straight += more
        reads: frozenset[str] = frozenset()
        if left is not None:
            reads = relations_in(left).intersection(self.step.reads)
        text = None if left is None else Text(left, self.engine, recurs=True)
        return LeanText(relations, text, tuple(sorted(reads)), straight)

    def _keep(self, made: LeanText | None) -> None:
        """Keep a general text that another one replaces, for the set of relations that it was made for, if that has none of
        its own.
        """
        mine = None if made is None else self._own.get(made.filled)
        if mine is not None and mine.made is None:
            mine.made = made

    def _trim(self) -> None:
        """Drop the text of sets that did not come lately. The caller holds the lock."""
        made = [one for one in self._own.values() if one.made is not None]
        for one in made[: max(len(made) - LEANS, 0)]:
            # It is made again only after a while, or two sets more than are kept would be made by turns.
            one.made, one.base, one.uses = None, None, 0
            one.needed = max(one.needed, LEANS)

    @lazy_property
    def text(self) -> Text:
        """The full statement's text."""
        assert self.step is not None
        return Text(self.step.kept, self.engine)

    def _cut(self) -> tuple[Piece, ...]:
        assert self.step is not None
        return pieces(self.step.statement)

    @lazy_property
    def timeless(self) -> bool:
        """Whether shifting all times by the same amount shifts only the times of the result."""
        stand_in = str(UPPER)
        return not any(
            found.this == stand_in
            for one in self._cut()
            for found in nodes(one.statement, exp.Literal)
        )

    def pieces(self, joins: Joins) -> tuple[TextPiece, ...]:
        """The statement in pieces that are run one after another."""
        with self._lock:
            known = self._pieces.get(joins)
            if known is None:
                known = self._pieces[joins] = tuple(
                    TextPiece(one.name, Text(_told(one.statement, joins), self.engine), one.reads)
                    for one in self._cut()
                )
            return known

    def at(self, lower: Timestamp, upper: Timestamp) -> Step:
        """The step at given times."""
        assert self.step is not None
        statement = at(self.step.statement, step_times(lower, upper))
        return replace(self.step, kept=Kept(statement))

    def kept(self) -> list[Kept]:
        """All statements that are kept for it."""
        with self._lock:
            leans = [one.made for one in self._own.values() if one.made is not None]
            if self._general is not None and self._general.made is not None:
                leans.append(self._general.made)
            pieces = [piece for made in self._pieces.values() for piece in made]
        texts = [lean.text for lean in leans] + [piece.text for piece in pieces]
        own = [] if self.step is None else [self.step.kept]
        return own + [text.kept for text in texts if text is not None]


def _told(statement: exp.Expression, joins: Joins) -> exp.Expression:
    """A copy of a statement with its join hints changed to `joins`, or removed."""
    made = statement.copy()
    for hint in list(made.find_all(exp.JoinHint)):
        if joins.value is None:
            # Each join's hint contains just this.
            assert isinstance(hint.parent, exp.Hint)
            hint.parent.pop()
        else:
            hint.set("this", joins.value)
    return made


def _filled(relations: Mapping[str, Relation]) -> frozenset[str]:
    return frozenset(name for name, one in relations.items() if one.rows)


def _either(one: Relation, other: Relation) -> Relation:
    """What is known if either holds. An empty relation has no rows to contradict anything."""
    if not one.rows or not other.rows:
        return one if one.rows else other
    return one.with_(other)


def _unless_empty(relation: Relation | None) -> Relation | None:
    return relation if relation is not None and relation.rows else None


def _covers(known: Mapping[str, Relation], relations: Mapping[str, Relation]) -> bool:
    """Whether what is known holds for these relations; it holds for every empty one."""
    return all(one.rows == 0 or known[name].covers(one) for name, one in relations.items())


def live(lookups: tuple[Lookup, ...], changed: frozenset[str]) -> frozenset[str]:
    """The arrangements in which a step may find rows, if only the relations `changed` have updates."""
    found = set(changed)
    moved = True
    while moved:
        moved = False
        for one in lookups:
            if one.arrangement in found:
                continue
            sources = one.sources
            if one.due or sources is None or any(x.relation in found for x in sources):
                found.add(one.arrangement)
                moved = True
    return frozenset(found - changed)


def needed(lookups: tuple[Lookup, ...], reads: frozenset[str]) -> tuple[Lookup, ...]:
    """The lookups of the relations that are read, and of those that their keys come from."""
    by_name = {one.arrangement: one for one in lookups}
    wanted: set[str] = set()
    waiting = [name for name in reads if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [x.relation for x in by_name[name].sources or () if x.relation in by_name]
    return tuple(one for one in lookups if one.arrangement in wanted)
