"""A step's statement, written once and run at many times.

Promise: a template means at given times what the statement rendered for these times means. Its text is written once for each engine and
each set of inputs that have updates, since making a tree, copying it and writing it out costs more than a small step takes to run; the
times are stand-ins in that text, numbers that nothing else in it can be mistaken for. Where a user's own literal does look like one, the
statement is written anew for each step instead.

Trade-off: a dataflow of n inputs may be asked for 2^n sets; `TEMPLATES` of them are kept, the last ones used.
"""

from __future__ import annotations

import enum
import functools
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.render.cut import Piece, pieces
from mzsql.render.kept import Kept
from mzsql.render.lean import Relation, columns_read, lean, widened
from mzsql.render.rendered import Lookup, Step
from mzsql.render.straight import Straight, taken_out
from mzsql.render.times import LOWER, UPPER
from mzsql.repr.frontier import Timestamp
from mzsql.repr.garbage import undisturbed

#: So many sets of changed inputs have their statement kept, for each dataflow.
TEMPLATES = 32
#: So many lean texts are kept of a template, each for where the same relations have rows, beside one for all that ever had some: that one
#: does where these do not, and instead of these until a set has come so often.
LEANS = 6
LEAN_USES = 3
#: What is written longer than this is not looked through for a lean text: that would take seconds.
LEAN_LENGTH = 200_000


def at(template: exp.Expression, times: Mapping[Timestamp, Timestamp]) -> exp.Expression:
    """A statement at its times: the stand-ins replaced."""
    texts = {str(stand_in): time for stand_in, time in times.items()}
    statement = template.copy()
    for literal in list(statement.find_all(exp.Literal)):
        if not literal.is_string and literal.this in texts:
            literal.replace(s.num(texts[literal.this]))
    return statement


def step_times(lower: Timestamp, upper: Timestamp) -> dict[Timestamp, Timestamp]:
    """What the stand-ins of a step stand for."""
    return {LOWER: lower, LOWER - 1: lower - 1, UPPER: upper}


class Text:
    """A statement's text with stand-ins for its times.

    Attributes:
        statement: the statement.
        recurs: whether it is known that it will be run again and again.
    """

    def __init__(
        self, statement: exp.Expression | Kept, engine: Engine, *, recurs: bool = False
    ) -> None:
        self.kept = statement if isinstance(statement, Kept) else Kept(statement)
        self.recurs = recurs
        self._engine = engine

    @property
    def statement(self) -> exp.Expression:
        """See the class. Not to be changed."""
        return self.kept.statement

    @functools.cached_property
    def _written(self) -> str | None:
        """None where a stand-in is in the text as something else."""
        statement = self.statement
        literals = [one.this for one in statement.find_all(exp.Literal) if not one.is_string]
        text = to_sql(statement, self._engine)
        same = all(text.count(one) == literals.count(one) for one in _NAMES)
        return text if same else None

    @functools.cached_property
    def with_parameters(self) -> str | None:
        """The text with named parameters for its times (`parameters`); None where it must be written anew for each step.

        Each place has a parameter of its own: where one stands in two, DuckDB plans a prepared statement anew whenever it is run.
        """
        text = self._written
        if text is None:
            return None
        numbers = itertools.count()
        return _STAND_INS.sub(lambda found: f"${_NAMES[found[0]]}_{next(numbers)}", text)

    @functools.cached_property
    def _places(self) -> tuple[tuple[str, Timestamp], ...]:
        """Each parameter, and the stand-in whose place it has."""
        found = enumerate(_STAND_INS.findall(self._written or ""))
        return tuple((f"{_NAMES[one]}_{number}", int(one)) for number, one in found)

    def parameters(self, lower: Timestamp, upper: Timestamp) -> dict[str, Timestamp]:
        """The parameters' values in the step of ``[lower, upper)``."""
        times = step_times(lower, upper)
        return {name: times[stand_in] for name, stand_in in self._places}

    def at(self, lower: Timestamp, upper: Timestamp) -> str:
        """The text of the step of ``[lower, upper)``."""
        text = self._written
        if text is None:
            return to_sql(at(self.statement, step_times(lower, upper)), self._engine)
        for stand_in, time in step_times(lower, upper).items():
            text = text.replace(str(stand_in), str(time))
        return text


#: The stand-ins of a step's text, and what they are called as parameters.
_NAMES = {str(LOWER): "mz_lower", str(LOWER - 1): "mz_before", str(UPPER): "mz_upper"}
_STAND_INS = re.compile("|".join(map(re.escape, _NAMES)))


class Joins(enum.Enum):
    """How Spark is told to join a step's updates with what they meet.

    A join that broadcasts runs a job for what it broadcasts, before the job of the statement. Where all relations are few rows a hash join
    in the one task that has them costs none. Where the updates are many, to tell Spark to broadcast them would be to tell it to explode.
    """

    #: all relations are few rows
    TOGETHER = "SHUFFLE_HASH"
    #: the updates are few, what they are looked up in is not
    STREAMED = "BROADCAST"
    #: the updates are many: as Spark sees fit
    OPEN = None


@dataclass(frozen=True)
class TextPiece:
    """A piece of a statement (`mzsql.render.cut`); `name` is None for the last."""

    name: str | None
    text: Text
    reads: tuple[str, ...]


@dataclass(frozen=True)
class LeanText:
    """A step's statement for relations of which something is known.

    Attributes:
        relations: what is.
        text: None where nothing comes out of it.
        reads: the relations that it reads.
        straight: what comes out beside the statement, as it is in relations.
    """

    relations: Mapping[str, Relation]
    text: Text | None
    reads: tuple[str, ...]
    straight: tuple[Straight, ...] = ()

    @functools.cached_property
    def filled(self) -> frozenset[str]:
        """The relations that may have rows."""
        return _filled(self.relations)


@dataclass
class _Lean:
    """What steps of a template have found in their relations, where the same ones had rows."""

    relations: Mapping[str, Relation]
    made: LeanText | None = None
    uses: int = 0
    making: bool = False


def _nothing(_: LeanText) -> None:
    pass


class StepTemplate:
    """The step of a dataflow for one engine and one set of inputs with updates.

    Attributes:
        step: its statement (with stand-ins), outputs and what it reads; None where nothing can come out.
        lookups: those that it needs.
    """

    def __init__(self, step: Step | None, lookups: tuple[Lookup, ...], engine: Engine) -> None:
        self.step = step
        self.lookups = lookups
        self.engine = engine
        self._lock = threading.Lock()
        self._leans: OrderedDict[frozenset[str], _Lean] = OrderedDict()
        #: what was found whichever relations had rows
        self._any: _Lean | None = None
        self._used = False
        self._pieces: dict[Joins, tuple[TextPiece, ...]] = {}

    def comes_again(self) -> bool:
        """Whether this was asked before. What comes once only, as the first change of a view, is not worth looking for a lean text."""
        used, self._used = self._used, True
        return used

    def lean(
        self,
        relations: Mapping[str, Relation],
        later: Callable[[Callable[[], None]], None],
        made: Callable[[LeanText], None] = _nothing,
    ) -> LeanText | None:
        """The statement for such relations; None while there is none, which is right for any.

        A text is made for what is like all that was seen until then, whichever relations had rows, and more. Where the same ones have rows
        again and again, one is made for these alone; meanwhile one serves that was made for more.

        Args:
            relations: what is known of each relation that the step reads.
            later: runs what makes a text, now or later.
            made: is given the text when it was made, there.
        """
        key = _filled(relations)
        with self._lock:
            known = self._known(key, relations)
            if known.made is not None and _covers(known.made.relations, relations):
                return known.made
            every = self._seen(relations)
            other = every.made
            if other is not None and not _covers(other.relations, relations):
                other = None
            if other is None:
                others = (one.made for one in self._leans.values() if one.made is not None)
                other = next((one for one in others if _covers(one.relations, relations)), None)
            elif other.filled == key:
                return other
            seen = known.relations.items()
            known.relations = {name: one.with_(relations[name]) for name, one in seen}
            known.uses += 1
            wanted = every if other is None else known if known.uses >= LEAN_USES else None
            if wanted is None or wanted.making or self._is_long:
                return other
            wanted.making = True
        later(lambda: made(self._make(wanted)))
        return other

    def _known(self, key: frozenset[str], relations: Mapping[str, Relation]) -> _Lean:
        known = self._leans.get(key)
        if known is None:
            known = self._leans[key] = _Lean(relations)
            while len(self._leans) > LEANS:
                self._leans.popitem(last=False)
        self._leans.move_to_end(key)
        return known

    def _seen(self, relations: Mapping[str, Relation]) -> _Lean:
        """What was found until now, these relations with it."""
        if self._any is None:
            self._any = _Lean(relations)
        seen = self._any.relations.items()
        self._any.relations = {name: _either(one, relations[name]) for name, one in seen}
        return self._any

    @functools.cached_property
    def _is_long(self) -> bool:
        return len(self.text.with_parameters or "") > LEAN_LENGTH

    @functools.cached_property
    def asked(self) -> dict[str, set[str]]:
        """The columns of each relation of which something should be known for `lean`."""
        assert self.step is not None
        return columns_read(self.step.statement, self.step.reads)

    @undisturbed()
    def _make(self, known: _Lean) -> LeanText:
        assert self.step is not None
        with self._lock:
            before = {} if known.made is None else known.made.relations
            relations = {
                name: widened(one, _unless_empty(before.get(name)))
                for name, one in known.relations.items()
            }
        # Where this fails it is told once: `making` stays, and it is not tried in each step.
        statement = lean(self.step.statement, relations)
        straight: tuple[Straight, ...] = ()
        if statement is not None:
            statement, straight = taken_out(statement, self.step.outputs, self.step.reads)
        reads: frozenset[str] = frozenset()
        if statement is not None:
            names = (one.name for one in statement.find_all(exp.Table))
            reads = frozenset(names).intersection(self.step.reads)
        text = None if statement is None else Text(statement, self.engine, recurs=True)
        made = LeanText(relations, text, tuple(sorted(reads)), straight)
        with self._lock:
            self._keep(known.made)
            known.made, known.uses, known.making = made, 0, False
        return made

    def _keep(self, made: LeanText | None) -> None:
        """Have a text that another takes the place of serve on where the relations have rows that it is for and has nothing to spare of."""
        mine = None if made is None else self._leans.get(made.filled)
        if mine is not None and mine.made is None:
            mine.made = made

    @functools.cached_property
    def text(self) -> Text:
        """The whole statement."""
        assert self.step is not None
        return Text(self.step.kept, self.engine)

    def _cut(self) -> tuple[Piece, ...]:
        assert self.step is not None
        return pieces(self.step.statement)

    @functools.cached_property
    def timeless(self) -> bool:
        """Whether the statement's rows are the same, but for their times, where all times are so much earlier or later."""
        stand_in = str(UPPER)
        return not any(
            found.this == stand_in
            for one in self._cut()
            for found in one.statement.find_all(exp.Literal)
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
        """The step at its times."""
        assert self.step is not None
        statement = at(self.step.statement, step_times(lower, upper))
        return replace(self.step, kept=Kept(statement))

    def kept(self) -> list[Kept]:
        """The statements that are kept for it."""
        with self._lock:
            entries = [*self._leans.values(), *([] if self._any is None else [self._any])]
            leans = [one.made for one in entries if one.made is not None]
            pieces = [piece for made in self._pieces.values() for piece in made]
        texts = [lean.text for lean in leans] + [piece.text for piece in pieces]
        own = [] if self.step is None else [self.step.kept]
        return own + [text.kept for text in texts if text is not None]


def _told(statement: exp.Expression, joins: Joins) -> exp.Expression:
    """A statement with its hints of joins as they are to be."""
    made = statement.copy()
    for hint in list(made.find_all(exp.JoinHint)):
        if joins.value is None:
            # A join has a hint of its own, of this one thing.
            assert isinstance(hint.parent, exp.Hint)
            hint.parent.pop()
        else:
            hint.set("this", joins.value)
    return made


def _filled(relations: Mapping[str, Relation]) -> frozenset[str]:
    return frozenset(name for name, one in relations.items() if one.rows)


def _either(one: Relation, other: Relation) -> Relation:
    """What is known of what is either; what is empty has nothing of which anything would be true."""
    if not one.rows or not other.rows:
        return one if one.rows else other
    return one.with_(other)


def _unless_empty(relation: Relation | None) -> Relation | None:
    return relation if relation is not None and relation.rows else None


def _covers(known: Mapping[str, Relation], relations: Mapping[str, Relation]) -> bool:
    """Whether what is known of relations is true of others, of no row of what is empty."""
    return all(one.rows == 0 or known[name].covers(one) for name, one in relations.items())


def live(lookups: tuple[Lookup, ...], changed: frozenset[str]) -> frozenset[str]:
    """The arrangements of which a step may find rows, by the relations of the inputs that have updates."""
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
    """The lookups of the relations that are read, and of those that their keys are found in."""
    by_name = {one.arrangement: one for one in lookups}
    wanted: set[str] = set()
    waiting = [name for name in reads if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [x.relation for x in by_name[name].sources or () if x.relation in by_name]
    return tuple(one for one in lookups if one.arrangement in wanted)
