"""One seed of maintained views: tables, views over them and over each other, indexes, changes; and after each change, what differs.

Promise: a seed always means the same views and changes. Whenever it is looked at a view is what its own query answers at that time, an
error where that fails; with tables emptied, what it is over nothing. Views are looked at after the last changes, and before only now and
then: most of what a seed costs is looking, and changes that nobody looks at come together in one step, which have to do as well. A
difference is told as SQL that runs as it stands: the least view, and the fewest rows and changes, that show it.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import psycopg
from fuzz_awkward import Table, emptied, random_change, random_row, random_tables
from fuzz_engines import Failure, Worlds, bag
from fuzz_run import least
from fuzz_steps import Gate
from fuzz_tree import Node
from fuzz_views import Views, as_table

import mzsql

VIEWS, CHANGES = 12, 4
#: How often views are looked at between the first change and the last ones.
LOOKS = 0.25
#: Of so many seeds the views meet the changes between two looks in one step: fewer steps, of several times each.
TOGETHER = 0.75
#: A view is asked so often, each for as long as a statement may take, before it is said never to be readable.
_PATIENCE = 20
#: One seed of so many says only what PostgreSQL answers alike, and is compared with it too.
COMMON = 3


@dataclass(frozen=True)
class Plan:
    """What a seed asks for.

    Attributes:
        views: names and queries, in the order in which they are made.
        kept: how each is kept: ``m`` as a materialized view, ``i`` as a view with an index.
        indexes: statements that make indexes on tables before the views.
        changes: statements of each change; the first fills the tables.
        looks: after which of them the views are looked at.
        together: whether the views meet the changes between two looks in one step, or as they come.
    """

    seed: int
    tables: tuple[Table, ...]
    views: tuple[tuple[str, Node], ...]
    kept: tuple[str, ...]
    indexes: tuple[str, ...]
    changes: tuple[tuple[str, ...], ...]
    looks: tuple[bool, ...]
    together: bool

    def setup(self) -> list[str]:
        """What stands before the first change."""
        return [*(table.created() for table in self.tables), *self.indexes]


def created(name: str, query: str, kept: str) -> list[str]:
    """What makes a view."""
    if kept == "m":
        return [f"CREATE MATERIALIZED VIEW {name} AS {query}"]
    return [f"CREATE VIEW {name} AS {query}", f"CREATE INDEX {name}_by_x0 ON {name} (x0)"]


def plan_of(seed: int, views: int = VIEWS, changes: int = CHANGES) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"maintained {seed}")
    common = seed % COMMON == 0
    tables = random_tables(rng, rng.choice([1, 2, 2, 3]), common=common)
    indexes = []
    for table in tables:
        if rng.random() < 0.3:
            column = rng.choice(table.columns).name
            indexes.append(f"CREATE INDEX {table.name}_by ON {table.name} ({column})")
    readable: list[Table] = list(tables)
    made: list[tuple[str, Node]] = []
    kept: list[str] = []
    for number in range(views):
        name = f"v{number}"
        over = readable if rng.random() < 0.25 else list(tables)
        view = Views(rng, over, common=common).view()
        made.append((name, view.query))
        kept.append("i" if rng.random() < 0.12 else "m")
        readable.append(as_table(name, view))
    filled = tuple(
        f"INSERT INTO {t.name} VALUES {', '.join(random_row(rng, t) for _ in range(rng.randint(1, 6)))}"
        for t in tables
        if rng.random() < 0.9
    )
    steps = [filled, *(tuple(random_change(rng, tables)) for _ in range(changes))]
    return Plan(
        seed,
        tuple(tables),
        tuple(made),
        tuple(kept),
        tuple(indexes),
        (*steps, tuple(emptied(tables))),
        (*(rng.random() < LOOKS for _ in range(changes)), True, True),
        rng.random() < TOGETHER,
    )


@dataclass(frozen=True)
class Found:
    """A view that is not what its query answers."""

    plan: Plan
    name: str
    how: str
    view: str
    query: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        told = [f"-- seed {self.plan.seed}: {self.how}", *(f"{s};" for s in self.statements)]
        told += [f"-- the view: {self.view}", f"-- its query: {self.query}"]
        return "\n".join([*told, f"-- again: make fuzz VIEWS=1 SEED={self.plan.seed}"])


@dataclass
class Tally:
    """What a run has done."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))


def exact(value: object) -> object:
    """A value that equals only what a person could not tell from it; a zero has no sign, as keys know none."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else repr(value + 0.0))
    if isinstance(value, Decimal):
        return ("numeric", str(value.normalize()) if value.is_finite() else str(value))
    if isinstance(value, list | tuple):
        return tuple(exact(item) for item in value)
    if isinstance(value, dict):
        return ("map", tuple(sorted((key, exact(item)) for key, item in value.items())))
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return (type(value).__name__, value.isoformat())
    return (type(value).__name__, str(value))


Answer = Counter[tuple[object, ...]] | mzsql.Error


class Maintained:
    """An environment for plans, one after the other, each in a schema of its own.

    Args:
        worlds: it, and PostgreSQL.
        gate: holds its steps back; None where nothing does.
    """

    def __init__(self, worlds: Worlds, gate: Gate | None = None) -> None:
        self.gate = Gate() if gate is None else gate
        self.connection, self.postgres = worlds.ours, worlds.postgres
        self.worlds = worlds
        worlds.ours.execute("SET statement_timeout = '30 s'")
        self._schemas = 0
        self.tally = Tally()
        #: The rows of the last answer.
        self.rows: list[tuple[object, ...]] = []

    def ask(self, sql: str) -> Answer:
        """An answer as a bag, or the error; what is late without failing is asked for again, as the machine may be busy."""
        for _ in range(_PATIENCE):
            answer = self._ask(sql)
            if not (isinstance(answer, mzsql.Error) and _is_late(str(answer))):
                break
        return answer

    def _ask(self, sql: str) -> Answer:
        try:
            self.rows = self.connection.execute(sql).fetchall()
        except mzsql.Error as error:
            return error
        return Counter(tuple(exact(value) for value in row) for row in self.rows)

    def begin(self) -> None:
        """An empty schema."""
        self.end()
        self._schemas += 1
        self.worlds.both(f"CREATE SCHEMA m{self._schemas}")
        self.worlds.both(f"SET search_path = m{self._schemas}")

    def end(self) -> None:
        """Drop what the plan before has made."""
        self.gate.open()
        if self._schemas:
            self.worlds.both(f"DROP SCHEMA IF EXISTS m{self._schemas} CASCADE")
            self.worlds.both("SET search_path = public")

    def change(self, statements: Sequence[str], *, common: bool = False) -> bool:
        """Make a change; whether it could be made. `common`: in PostgreSQL too, where it has to succeed."""
        try:
            for statement in statements:
                self.connection.execute(statement)
        except mzsql.InternalError:
            raise
        except mzsql.Error as error:
            self.tally.counts[f"changes refused: {type(error).__name__}"] += 1
            if statements[0] == "BEGIN":
                self.connection.execute("ROLLBACK")
            return False
        for statement in statements if common else ():
            self.postgres.execute(statement.encode())
        return True


def _is_late(message: str) -> bool:
    """Whether an error says no more than that the machine is busy, or that this process was stopped for a while."""
    behind = "is not readable at" in message and "dataflow fails" not in message
    return behind or "canceling statement due to statement timeout" in message


def bug(error: mzsql.Error) -> bool:
    """Whether an error is mzsql's own fault."""
    return isinstance(error, mzsql.InternalError) or "internal error" in str(error)


def difference(view: Answer, query: Answer) -> str:
    """In what way a view differs from its query; empty: in none."""
    for answer in (view, query):
        if isinstance(answer, mzsql.Error) and bug(answer):
            return "a bug"
    if isinstance(view, mzsql.Error) and getattr(view, "sqlstate", "") == "55000":
        return "not readable"
    if isinstance(view, mzsql.Error) != isinstance(query, mzsql.Error):
        return "only the view fails" if isinstance(view, mzsql.Error) else "only the query fails"
    if isinstance(view, mzsql.Error):
        return ""
    return "" if view == query else "rows"


def run_plan(world: Maintained, plan: Plan) -> Iterator[Found]:
    """Every view that differs, at its first difference."""
    world.begin()
    world.gate.sparing = plan.together
    told: list[str] = []

    def do(statement: str) -> None:
        world.connection.execute(statement)
        told.append(statement)

    common = plan.seed % COMMON == 0
    for statement in plan.setup():
        do(statement)
        if common and statement.startswith("CREATE TABLE"):
            world.postgres.execute(statement.encode())
    early, late = plan.views[::2], plan.views[1::2]
    kept = dict(zip((name for name, _ in plan.views), plan.kept, strict=True))
    queries: dict[str, str] = {}

    def make(name: str, query: Node) -> Iterator[Found]:
        statements = created(name, str(query), kept[name])
        try:
            for statement in statements:
                do(statement)
        except mzsql.Error as error:
            if bug(error):
                yield Found(plan, name, "a bug", str(error), "", (*told, *statements))
            world.tally.counts["views refused"] += 1
            return
        queries[name] = str(query)
        if common:
            _view_there(world, name, str(query))
        world.tally.counts["views"] += 1

    for number, change in enumerate(plan.changes):
        # Half of the views are there before there are rows, the others are hydrated from them.
        for name, query in (early, late)[number] if number < 2 else ():
            yield from make(name, query)
        try:
            if plan.together:
                world.gate.close()
            made = world.change(change, common=common)
        except mzsql.InternalError as error:
            yield Found(plan, "", "a bug in a change", str(error), "", (*told, *change))
            break
        if not made:
            continue
        told += change
        if plan.looks[number]:
            world.gate.open()
        for name, query in list(queries.items()) if plan.looks[number] else ():
            found = compared(world, plan, name, query, told, common=common)
            if found is not None:
                del queries[name]
                yield found
    world.tally.counts["seeds"] += 1


def _view_there(world: Maintained, name: str, query: str) -> None:
    """A view in PostgreSQL, for the views that read it; where it has no such query, these have none either."""
    try:
        world.postgres.execute(f"CREATE VIEW {name} AS {query}".encode())
    except psycopg.Error:
        world.tally.counts["views that PostgreSQL lacks"] += 1


def _with_postgresql(
    world: Maintained,
    plan: Plan,
    name: str,
    query: str,
    mine: Sequence[tuple[object, ...]],
    told: Sequence[str],
) -> Found | None:
    """A view's rows beside PostgreSQL's answer to its query, where it has one: which of several errors is met first differs."""
    theirs = world.worlds.theirs(query)
    if isinstance(theirs, Failure):
        return None
    world.tally.counts["comparisons with PostgreSQL"] += 1
    ours, others = bag(mine), bag(theirs)
    if ours == others:
        return None
    more, less = list((ours - others).elements())[:5], list((others - ours).elements())[:5]
    return Found(
        plan, name, "PostgreSQL", f"of its own {more}", f"PostgreSQL's own {less}", tuple(told)
    )


def compared(
    world: Maintained, plan: Plan, name: str, query: str, told: Sequence[str], *, common: bool
) -> Found | None:
    """A view beside its query, at one time or at two between which nothing was written."""
    view = world.ask(f"SELECT * FROM {name}")
    rows = world.rows
    answer = world.ask(query)
    how = difference(view, answer)
    world.tally.counts["comparisons"] += 1
    failed = isinstance(view, mzsql.Error)
    if failed:
        world.tally.counts["comparisons of errors"] += 1
    if not how:
        compares = common and not failed
        return _with_postgresql(world, plan, name, query, rows, told) if compares else None
    return Found(plan, name, how, shown(view, answer), shown(answer, view), tuple(told))


def shown(answer: Answer, other: Answer) -> str:
    """An answer for a person: an error, or the rows that the other has not."""
    if isinstance(answer, mzsql.Error):
        return f"{type(answer).__name__}: {answer}".replace("\n", " ")
    if isinstance(other, mzsql.Error):
        return f"{answer.total()} rows"
    return f"{answer.total()} rows, of its own {list((answer - other).elements())[:5]}"


# --- smaller --------------------------------------------------------------------------------------


def shrunk(world: Maintained, found: Found, tries: int = 150) -> Found:
    """The view alone with what it reads, then the least query, then the fewest changes that differ in the same way."""
    if not found.name:
        return found
    plan = _alone(found.plan, found.name)
    best = _first(world, plan, found)
    if best is None:
        return found

    def shows(candidate: Plan) -> Found | None:
        return _first(world, candidate, found)

    name, query = plan.views[-1]

    def still(node: Node) -> bool:
        return shows(replace(plan, views=(*plan.views[:-1], (name, node)))) is not None

    query = least(query, still, tries)
    plan = replace(plan, views=(*plan.views[:-1], (name, query)))
    plan = _fewer(plan, shows)
    return shows(plan) or best


def _alone(plan: Plan, name: str) -> Plan:
    """A view and the views that it reads."""
    names = [one for one, _ in plan.views]
    wanted = {name}
    for one, query in reversed(plan.views[: names.index(name) + 1]):
        if one in wanted:
            wanted |= {other for other in names if f"{other} AS " in str(query)}
    views = [
        (one, query, how)
        for (one, query), how in zip(plan.views, plan.kept, strict=True)
        if one in wanted
    ]
    return replace(
        plan,
        views=tuple((one, query) for one, query, _ in views),
        kept=tuple(how for _, _, how in views),
    )


def _first(world: Maintained, plan: Plan, like: Found) -> Found | None:
    for found in run_plan(world, plan):
        if found.name == like.name and found.how == like.how:
            return found
    return None


def _fewer(plan: Plan, shows: object) -> Plan:
    assert callable(shows)
    if plan.indexes and shows(replace(plan, indexes=())):
        plan = replace(plan, indexes=())
    for number in reversed(range(len(plan.changes))):
        candidate = replace(plan, changes=(*plan.changes[:number], (), *plan.changes[number + 1 :]))
        if shows(candidate):
            plan = candidate
    return plan
