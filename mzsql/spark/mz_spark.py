"""`MzSpark`, which users have as ``con.spark``: their Spark session, with mzsql's relations as tables.

Promise: `MzSpark.sql` runs mzsql's own statements (EXPLAIN … PLAN, CREATE MATERIALIZED VIEW, INSERT INTO a table of
mzsql, …) and passes everything else to Spark. mzsql's relations in a query are read by Spark's own Parquet reader, all
at one timestamp, at which every write acknowledged before the call is visible. A DataFrame stays at that timestamp,
however often it is evaluated. Other attributes are the session's: ``con.spark.read``, ``con.spark.conf``. The
trade-off: the files that a DataFrame reads are kept for `KEEP_SECONDS`; evaluated later, it may find them gone.

A name means what Spark finds under it; where Spark finds nothing, an unqualified name is looked up in ``public``.
CREATE TABLE and CREATE VIEW are Spark's here; on a cursor they are mzsql's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from mzsql.adapter.reader import EnvironmentReader, RelationInfo
from mzsql.compute.engines.paths import is_connect
from mzsql.compute.engines.relations import arrow_frame, parts_frame
from mzsql.compute.engines.statements import run_over
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.frontend.catalog import PartialName
from mzsql.frontend.parse.heads import Whose, whose
from mzsql.location import shown_url
from mzsql.render.statement import DIFF, ERROR, Ast, col, subquery
from mzsql.render.updates import consolidated, repeated
from mzsql.repr.errors import InvalidParameter, UndefinedTable
from mzsql.repr.types import updates_schema
from mzsql.spark.registration import Registration, quote

#: Seconds for which the files that a DataFrame of `MzSpark.sql` reads are kept.
KEEP_SECONDS = 900.0


def check_query(text: object, what: str) -> None:
    """Check that a statement or name is a str.

    Raises:
        InvalidParameter: it is not.
    """
    if not isinstance(text, str):
        raise InvalidParameter(f"{what} must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameter(f"{what} must be Unicode text: it has a lone surrogate") from None


def _rows(names: Sequence[str]) -> exp.Select:
    """The rows of a relation ``updates`` with the columns `names`, each as often as its diffs say; an error in it is raised."""
    row: list[Ast] = [col(name) for name in names]
    there = consolidated("updates", row, positive=True)
    count: Ast = col(DIFF)
    if ERROR in names:
        failed = s.big(s.call("RAISE_ERROR", col(ERROR)))
        count = s.case((s.is_null(col(ERROR)), count), otherwise=failed)
    return repeated(subquery(there, "there"), row, count, Engine.SPARK)


@dataclass(frozen=True)
class _Use:
    """A relation in a query's text.

    Attributes:
        start, end: the start and end of its name in the text.
        relation: the relation.
        aliased: whether the query gives it an alias there.
    """

    start: int
    end: int
    relation: RelationInfo
    aliased: bool


def _renamed(
    text: str, uses: Sequence[_Use], name: Callable[[RelationInfo], str], *, formatted: bool
) -> str:
    """A query with its relations under other names; unless ``formatted``, escaped for use as a format string."""
    whole, at = [], 0

    def rest(upto: int) -> str:
        piece = text[at:upto]
        return piece if formatted else piece.replace("{", "{{").replace("}", "}}")

    for use in uses:
        alias = "" if use.aliased else f" AS {quote(use.relation.name)}"
        whole += [rest(use.start), name(use.relation), alias]
        at = use.end
    return "".join([*whole, rest(len(text))])


class MzSpark:
    """A Spark session with an environment's relations in it; attributes not listed here are the session's.

    Args:
        session: the user's session.
        reader: reads the environment.
        execute: runs one of mzsql's own statements and returns its rows, or None where it has none.
        options: the data source options that name the environment; without them, or where one holds a secret (Spark
            shows options to everyone), nothing is registered in the session's catalog.
        errors: turns the engine's errors into those of the caller's API.
    """

    def __init__(
        self,
        session: SparkSession,
        reader: EnvironmentReader,
        execute: Callable[[str], pa.Table | None],
        options: Mapping[str, str] | None = None,
        errors: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.session = session
        self._errors = errors
        self._reader = reader
        self._execute = execute
        self._kept: deque[tuple[float, Any]] = deque()
        public = options is not None and all(shown_url(o) == o for o in options.values())
        self._registration = Registration(session, options) if options and public else None
        # How many builtin relations are registered so far; None: all. Only a Spark Connect server takes long for each.
        self._builtin: int | None = 0 if is_connect(session) else None

    def __getattr__(self, name: str) -> Any:
        if name == "session":  # not set yet: no attribute of a session that is not there
            raise AttributeError(name)
        return getattr(self.session, name)

    def register(self) -> None:
        """Bring the session's catalog up to date with the environment's. DDL of this connection does so by itself; this
        is for DDL from elsewhere.

        In a Spark Connect session it covers users' relations, and the builtin ones that `register_more` has registered.
        """
        if self._registration is not None:
            with self._errors():
                relations = self._reader.relations()
                if self._builtin is not None:
                    users = [r for r in relations if r.database is not None]
                    builtin = [r for r in relations if r.database is None]
                    relations = users + builtin[: self._builtin]
                self._registration.follow(relations)

    def register_more(self, count: int) -> bool:
        """Register ``count`` more builtin relations with a Spark Connect server, and bring its catalog up to date;
        whether some are still missing.

        `sql` and `table` of this object can read those all the same.
        """
        if self._builtin is None or self._registration is None:
            return False
        self._builtin += count
        if self._builtin >= sum(r.database is None for r in self._reader.relations()):
            self._builtin = None
        self.register()
        return self._builtin is not None

    def unregister(self) -> None:
        """Remove the environment's relations from the session's catalog."""
        if self._registration is not None:
            with self._errors():
                self._registration.forget()

    def sql(self, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803  Spark's own parameter name
        """Run a statement of mzsql or of Spark.

        Args:
            sqlQuery: one statement.
            *args: as in `SparkSession.sql`; for statements of Spark only.
            **kwargs: likewise.

        Raises:
            SqlError: a statement of mzsql failed.
            UndefinedTable: a schema of the environment has no such relation; the hint is a similar one.
            AnalysisException: a statement of Spark is wrong otherwise.
        """
        with self._errors():
            check_query(sqlQuery, "a statement")
            own = self._is_own(sqlQuery)
        if own:
            rows = self._execute(sqlQuery)
            return arrow_frame(self.session, pa.table({}) if rows is None else rows)
        with self._errors():
            uses = self._uses(sqlQuery)
            frames = self._frames(uses)
        try:
            return self._run(sqlQuery, uses, frames, args, kwargs)
        except AnalysisException as failure:
            with self._errors():
                self._refuse_unknown(failure)
            raise

    def _run(
        self,
        text: str,
        uses: Sequence[_Use],
        frames: Mapping[str, DataFrame],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> DataFrame:
        """Run a statement of Spark, over the relations of mzsql that it uses."""
        # The class's method: the object's own may be `sql` itself, see `mzsql.spark.register`.
        run = partial(type(self.session).sql, self.session)
        if not uses:
            return run(text, *args, **kwargs)
        if is_connect(self.session):
            # Spark Connect analyzes the text each time rows are wanted, so the frames that it reads are passed along.
            text = _renamed(text, uses, lambda r: f"{{mzsql_{r.id}}}", formatted=bool(kwargs))
            return run(text, *args, **kwargs, **{f"mzsql_{id_}": f for id_, f in frames.items()})
        views = {id_: f"mzsql_{id_}_{time.monotonic_ns()}" for id_ in frames}
        try:
            for id_, frame in frames.items():
                frame.createOrReplaceTempView(views[id_])
            text = _renamed(text, uses, lambda r: quote(views[r.id]), formatted=True)
            return run(text, *args, **kwargs)
        finally:
            for view in views.values():
                self.session.catalog.dropTempView(view)

    def _refuse_unknown(self, failure: AnalysisException) -> None:
        """Where Spark does not find a table in a schema of the environment: the error with the name that may be meant.

        Raises:
            UndefinedTable: it is so.
        """
        if failure.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return
        name = failure.getMessageParameters().get("relationName", "")
        partial = PartialName(*reversed([part.strip("`") for part in name.split(".")][-3:]))
        if partial.schema is not None and self._reader.has_schema(partial.schema):
            raise self._reader.unknown(partial) from None

    def table(self, tableName: str) -> DataFrame:  # noqa: N803  Spark's own parameter name
        """A relation of mzsql at a fresh timestamp, or a table of Spark."""
        with self._errors():
            check_query(tableName, "the name of a table")
            relation = self._relation(tableName)
        if relation is None:
            return self.session.table(tableName)
        with self._errors():
            return self._frame(relation, self._reader.fresh_timestamp())

    def _is_own(self, text: str) -> bool:
        owner, name = whose(text)
        if owner is Whose.NAMED:
            assert name is not None
            return self._reader.find(name) is not None
        return owner is Whose.OURS

    def _relation(self, name: str) -> RelationInfo | None:
        try:
            return self._reader.relation(name)
        except UndefinedTable:
            return None

    def _frames(self, uses: Sequence[_Use]) -> dict[str, DataFrame]:
        """The contents of the relations that a query uses, by id, all at one timestamp."""
        if not uses:
            return {}
        at = self._reader.fresh_timestamp()
        used = {use.relation.id: use.relation for use in uses}
        return {id_: self._frame(relation, at) for id_, relation in used.items()}

    def _uses(self, text: str) -> list[_Use]:
        """Where mzsql's relations are in a query, in order of position."""
        try:
            tree = sqlglot.parse_one(text, read="spark")
        except SqlglotError:
            return []  # Spark understands more than sqlglot; it finds the relations in its own catalog then
        common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        found = []
        for table in tree.find_all(exp.Table):
            parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
            if not parts or len(parts) != len(table.parts) or "start" not in parts[0].meta:
                continue
            if len(parts) == 1 and parts[0].name.lower() in common:
                continue
            name = ".".join(part.name for part in parts)
            relation = self._relation(name)
            if relation is None:
                continue
            if len(parts) == 1 and self.session.catalog.tableExists(quote(name)):
                continue
            start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
            found.append(_Use(start, end, relation, bool(table.alias)))
        return sorted(found, key=lambda use: use.start)

    def _frame(self, relation: RelationInfo, at: int) -> DataFrame:
        """A relation's rows at a time: read by Spark from the stored parts, or computed here where the relation is not
        stored.
        """
        if not relation.stored:
            return arrow_frame(self.session, self._reader.rows(relation, at))
        parts = self._reader.parts(relation, at)
        self._keep(parts)
        failing = relation.kind != "table"
        stored = updates_schema(relation.desc.typ.columns, errors=failing)
        updates = parts_frame(self.session, parts, stored, as_of=at)
        rows = run_over(self.session, _rows(stored.names), updates=updates)
        return rows.select(
            *(
                F.col(c).alias(name)
                for c, name in zip(stored.names, relation.desc.names, strict=False)
            )
        )

    def _keep(self, parts: Any) -> None:
        """Keep a DataFrame's files from being deleted for `KEEP_SECONDS`."""
        now = time.monotonic()
        while self._kept and self._kept[0][0] < now - KEEP_SECONDS:
            self._kept.popleft()
        self._kept.append((now, parts))
