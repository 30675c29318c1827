"""Statements as parsed: the shape of the text, with no name resolved yet.

Promise: structs of our own around sqlglot's expressions in our dialect. Each knows the text that it came from, so that
errors have positions, and `create_sql` can be made from the very tokens that the user wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import expressions as exp

from mzsql.frontend.catalog import PartialName


@dataclass(frozen=True)
class Source:
    """A statement's place in a text: the characters from `start` to `end` of the whole `text`."""

    text: str
    start: int
    end: int

    @property
    def statement(self) -> str:
        """The statement's own text."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Name:
    """A possibly qualified name and its 1-based position."""

    partial: PartialName
    position: int

    def __str__(self) -> str:
        return str(self.partial)


@dataclass(frozen=True)
class ColumnSpec:
    """A column of CREATE TABLE."""

    name: str
    typ: exp.DataType
    position: int
    not_null: bool = False
    default: exp.Expr | None = None


@dataclass(frozen=True)
class Statement:
    """Any statement.

    Attributes:
        lengthy: whether its duration grows with the data that it loads or creates, so that only an explicit timeout
            bounds it.
    """

    lengthy: ClassVar[bool] = False

    source: Source = field(repr=False, compare=False)

    def trees(self) -> Iterator[exp.Expr]:
        """The syntax trees that make up a definition, for statements that the catalog keeps as one; none for others."""
        yield from ()

    @property
    def ends(self) -> bool:
        """Whether it ends the transaction, so that one that has failed takes it."""
        return False

    @property
    def rolls_back(self) -> bool:
        """Whether it ends the transaction without a trace of it."""
        return False


@dataclass(frozen=True)
class Select(Statement):
    """A query; `span` is the start and end of its text without AS OF."""

    query: exp.Expr
    span: tuple[int, int]
    as_of: exp.Expr | None = None
    at_least: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE [TEMPORARY] TABLE; `keys` has keyword, columns and position of each constraint."""

    lengthy: ClassVar[bool] = True

    name: Name
    columns: tuple[ColumnSpec, ...]
    keys: tuple[tuple[str, tuple[str, ...], int], ...]
    if_not_exists: bool = False
    retain: str | None = None
    temporary: bool = False

    def trees(self) -> Iterator[exp.Expr]:
        """Types and defaults of its columns."""
        for column in self.columns:
            yield column.typ
            if column.default is not None:
                yield column.default


@dataclass(frozen=True)
class CreateType(Statement):
    """CREATE TYPE … AS LIST, MAP or (`kind` ``record``) of fields, each with name, position and type."""

    name: Name
    kind: str
    key: exp.DataType | None = None
    element: exp.DataType | None = None
    fields: tuple[tuple[str, int, exp.DataType], ...] = ()

    def trees(self) -> Iterator[exp.Expr]:
        """The types that it is made of."""
        yield from (typ for typ in (self.key, self.element) if typ is not None)
        yield from (typ for _, _, typ in self.fields)


@dataclass(frozen=True)
class Refresh:
    """A REFRESH option of a materialized view.

    Attributes:
        kind: ``on commit``, ``at creation``, ``at`` or ``every``.
        position: its position in the text.
        at: the time of AT, or of EVERY … ALIGNED TO.
        every: the interval of EVERY.
        unit: the unit that the interval is cut to, such as ``day``; empty: none.
    """

    kind: str
    position: int
    at: exp.Expr | None = None
    every: str = ""
    unit: str = ""


@dataclass(frozen=True)
class CreateView(Statement):
    """CREATE [OR REPLACE] [MATERIALIZED | TEMPORARY] VIEW."""

    lengthy: ClassVar[bool] = True

    name: Name
    columns: tuple[str, ...]
    query: Select
    materialized: bool = False
    if_not_exists: bool = False
    or_replace: bool = False
    cluster: Name | None = None
    options: tuple[tuple[str, str], ...] = ()
    refresh: tuple[Refresh, ...] = ()
    temporary: bool = False

    def trees(self) -> Iterator[exp.Expr]:
        """Its query, and the types that recursive bindings declare, which are in no tree."""
        query = self.query.query
        yield query
        for binding in query.find_all(exp.CTE):
            yield from binding.meta.get("types") or ()


@dataclass(frozen=True)
class CreateIndex(Statement):
    """CREATE [DEFAULT] INDEX; `keys` None: the default key."""

    lengthy: ClassVar[bool] = True

    name: Name | None
    on: Name
    keys: tuple[exp.Expr, ...] | None
    cluster: Name | None = None
    if_not_exists: bool = False
    retain: str | None = None

    def trees(self) -> Iterator[exp.Expr]:
        """Its keys."""
        yield from self.keys or ()


@dataclass(frozen=True)
class AlterRetain(Statement):
    """ALTER … SET (RETAIN HISTORY FOR …), or with `retain` None RESET (RETAIN HISTORY); `kind` as in `Drop`."""

    kind: str
    name: Name
    retain: str | None
    if_exists: bool = False


@dataclass(frozen=True)
class Drop(Statement):
    """DROP <kind> names."""

    lengthy: ClassVar[bool] = True

    kind: str
    names: tuple[Name, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT INTO; `query` None: DEFAULT VALUES."""

    table: Name
    columns: tuple[tuple[str, int], ...]
    query: exp.Expr | None
    alias: str | None = None
    returning: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True)
class Update(Statement):
    """UPDATE; `sources` is a query over the relations of its FROM clause."""

    table: Name
    alias: str | None
    assignments: tuple[tuple[str, int, exp.Expr], ...]
    where: exp.Expr | None
    returning: tuple[exp.Expr, ...] = ()
    sources: exp.Select | None = None


@dataclass(frozen=True)
class Delete(Statement):
    """DELETE; `using` is a query over the relations of its USING clause."""

    table: Name
    alias: str | None
    using: exp.Select | None
    where: exp.Expr | None
    returning: tuple[exp.Expr, ...] = ()


#: An option of COPY: its name, its value (a boolean for HEADER, else a text), and where it stands.
CopyOption = tuple[str, str | bool, int]


@dataclass(frozen=True)
class CopyFrom(Statement):
    """COPY t FROM '<file>' | STDIN; `path` None: STDIN."""

    lengthy: ClassVar[bool] = True

    table: Name
    columns: tuple[tuple[str, int], ...]
    path: str | None
    options: tuple[CopyOption, ...]


@dataclass(frozen=True)
class CopyTo(Statement):
    """COPY {t | (query) | (SUBSCRIBE …)} TO {STDOUT | '<file or URL>'}; `path` None: STDOUT."""

    lengthy: ClassVar[bool] = True

    what: Name | Select | Subscribe
    columns: tuple[tuple[str, int], ...]
    path: str | None
    options: tuple[CopyOption, ...]


@dataclass(frozen=True)
class ObjectRef(Statement):
    """VIEW v, MATERIALIZED VIEW v or INDEX i, as the subject of EXPLAIN."""

    kind: str
    name: Name


@dataclass(frozen=True)
class Explain(Statement):
    """EXPLAIN."""

    stage: str
    format: str
    options: tuple[tuple[str, bool | int | str], ...]
    explainee: Statement
    replan: bool = False


ANALYZED = ("cpu", "memory", "hydration")
"""The properties that EXPLAIN ANALYZE can show."""
ANALYZED_OF_CLUSTERS = ("cpu", "memory")
"""Those that EXPLAIN ANALYZE CLUSTER can show."""


@dataclass(frozen=True)
class ExplainAnalyze(Statement):
    """EXPLAIN ANALYZE of an object: CPU, memory or hydration of its nodes; without one, of all objects on the session's cluster."""

    properties: tuple[str, ...]
    skew: bool
    explainee: ObjectRef | None
    as_sql: bool


@dataclass(frozen=True)
class Show(Statement):
    """SHOW <objects>."""

    kind: str
    schema: Name | None = None
    on: Name | None = None
    cluster: Name | None = None
    like: str | None = None


@dataclass(frozen=True)
class ShowCreate(Statement):
    """SHOW [REDACTED] CREATE <kind> <name>."""

    kind: str
    name: Name
    redacted: bool = False


@dataclass(frozen=True)
class ShowVariable(Statement):
    """SHOW <variable>."""

    name: str


@dataclass(frozen=True)
class SetVariable(Statement):
    """SET, RESET, ALTER SYSTEM SET, ALTER SYSTEM RESET; `values` None: to the default."""

    name: str
    values: tuple[str, ...] | None
    local: bool = False
    system: bool = False


@dataclass(frozen=True)
class Subscribe(Statement):
    """SUBSCRIBE.

    Attributes:
        what: an object's name, a query or a SHOW.
        snapshot: WITH (SNAPSHOT).
        progress: WITH (PROGRESS).
        as_of, at_least: AS OF [AT LEAST] t.
        up_to: UP TO t.
        envelope: ``upsert``, ``debezium`` or None.
        keys: the envelope's KEY, each with its position.
        order: the items of WITHIN TIMESTAMP ORDER BY.
    """

    what: Name | exp.Expr | Show
    snapshot: bool = True
    progress: bool = False
    as_of: exp.Expr | None = None
    at_least: bool = False
    up_to: exp.Expr | None = None
    envelope: str | None = None
    keys: tuple[tuple[str, int], ...] = ()
    order: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True)
class Prepare(Statement):
    """PREPARE name (types) AS statement; `text` is the text of the prepared statement."""

    name: str
    types: tuple[exp.DataType, ...]
    text: str
    statement: Statement


@dataclass(frozen=True)
class Argument:
    """An argument of EXECUTE: its text, the 1-based position of that, and the parsed expression."""

    text: str
    position: int
    expression: exp.Expr


@dataclass(frozen=True)
class Execute(Statement):
    """EXECUTE name (arguments)."""

    name: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Transaction(Statement):
    """BEGIN, COMMIT, ROLLBACK: `kind`."""

    kind: str
    isolation: str | None = None
    read_only: bool | None = None

    @property
    def ends(self) -> bool:
        """See `Statement.ends`."""
        return self.kind in ("commit", "rollback")

    @property
    def rolls_back(self) -> bool:
        """See `Statement.rolls_back`."""
        return self.kind == "rollback"
