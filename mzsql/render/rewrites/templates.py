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
import itertools
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
#: A text of its own is made for a set that has come `LEAN_USES` times.
LEANS = 12
LEAN_USES = 3
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


@dataclass
class _Lean:
    """What was seen of the relations of a template's steps in which the same ones had rows."""

    relations: Mapping[str, Relation]
    made: LeanText | None = None
    uses: int = 0
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
        self._leans: OrderedDict[frozenset[str], _Lean] = OrderedDict()
        #: what was seen whichever relations had rows
        self._any: _Lean | None = None
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

        A text is made for everything seen until then, whichever relations had rows, and some more. If the same
        relations have rows again and again, one is made for these alone; until then a more general one serves.

        Args:
            relations: what is known of each relation that the step reads.
            later: runs the making of a text, now or later.
            made: called there with a text that was made.
            after: how many calls to see relations in before the first text is made.
        """
        key = _filled(relations)
        with self._lock:
            known = self._known(key, relations)
            if known.made is not None and _covers(known.made.relations, relations):
                return known.made
            every = self._any
            other = None if every is None else every.made
            if other is not None and not _covers(other.relations, relations):
                other = None
            if every is None or other is None:
                # What a text was made for is not forgotten when it is made anew, so nothing else need be remembered.
                every = self._seen(relations)
                others = (one.made for one in self._leans.values() if one.made is not None)
                other = next((one for one in others if _covers(one.relations, relations)), None)
            elif other.filled == key:
                return other
            seen = known.relations.items()
            known.relations = {name: one.with_(relations[name]) for name, one in seen}
            known.uses += 1
            every.uses += 1
            wanted = every if other is None else known if known.uses >= LEAN_USES else None
            if wanted is None or wanted.making or self.is_long or every.uses <= after:
                return other
            wanted.making = True
        later(lambda: self._make(wanted, made))
        return other

    def expect(
        self, relations: Mapping[str, Relation], made: Callable[[LeanText], None] = _nothing
    ) -> None:
        """Make a lean text for such relations, and some more, before any step has come; nothing if there is one.

        Args:
            relations: what steps will probably meet. A step that meets something else runs the full statement.
            made: called with the text.
        """
        with self._lock:
            every = self._seen(relations)
            if every.made is not None or every.making or self.is_long:
                return
            every.making = True
        self._make(every, made)

    def _known(self, key: frozenset[str], relations: Mapping[str, Relation]) -> _Lean:
        known = self._leans.get(key)
        if known is None:
            known = self._leans[key] = _Lean(relations)
            while len(self._leans) > LEANS:
                self._leans.popitem(last=False)
        self._leans.move_to_end(key)
        return known

    def _seen(self, relations: Mapping[str, Relation]) -> _Lean:
        """What was seen until now, including these relations."""
        if self._any is None:
            self._any = _Lean(relations)
        seen = self._any.relations.items()
        self._any.relations = {name: _either(one, relations[name]) for name, one in seen}
        return self._any

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
    def _make(self, known: _Lean, told: Callable[[LeanText], None]) -> None:
        assert self.step is not None
        with self._lock:
            before = {} if known.made is None else known.made.relations
            relations = {
                name: widened(one, _unless_empty(before.get(name)))
                for name, one in known.relations.items()
            }
        # If this fails it is reported once: `making` stays true, so it is not tried again at every step.
        statement = lean(satisfied(self.step.statement, self._conditions), relations)
        straight: tuple[Straight, ...] = ()
        if statement is not None:
            statement, straight = taken_out(statement, self.step.outputs, self.step.reads)
        reads: frozenset[str] = frozenset()
        if statement is not None:
            reads = relations_in(statement).intersection(self.step.reads)
        text = None if statement is None else Text(statement, self.engine, recurs=True)
        made = LeanText(relations, text, tuple(sorted(reads)), straight)
        try:
            # Before any step runs it, so that it is planned by then.
            told(made)
        finally:
            with self._lock:
                self._keep(known.made)
                known.made, known.uses, known.making = made, 0, False

    def _keep(self, made: LeanText | None) -> None:
        """Keep a text that another one replaces, for the set of relations that it was made for, if that has none of its
        own.
        """
        mine = None if made is None else self._leans.get(made.filled)
        if mine is not None and mine.made is None:
            mine.made = made

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
            entries = [*self._leans.values(), *([] if self._any is None else [self._any])]
            leans = [one.made for one in entries if one.made is not None]
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
