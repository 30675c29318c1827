"""An environment's relations in a Spark session's own catalog, so that plain ``spark.sql`` and every tool on the session see them.

Promise: each relation is a view of its own name in its own schema (``mz_internal.mz_hydration_statuses``, ``public.q3``), live: every
query reads anew. `Registration.follow` makes the catalog equal to a list of relations and touches only what changed.

How: Spark hands a data source the options of a query, never those of the table in its catalog. So each relation is a table ``USING
mzsql`` in the schema `SOURCES`, which states its columns, and a view over it that states its options. Trade-off: names with other
characters than letters, digits and underscores, which Spark's catalog refuses, are left out; `Registration.left_out` lists them, and
`MzSpark.sql` reads them all the same.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from mzsql.adapter.reader import RelationInfo
from mzsql.compute.engines.relations import spark_schema
from mzsql.repr.errors import ObjectInUse
from mzsql.repr.types import arrow_schema

#: The schema of Spark's catalog that holds the tables ``USING mzsql`` which the views read.
SOURCES = "mzsql"

#: The setting with which a session lets data sources in Python take filters over.
FILTERS = "spark.sql.python.filterPushdown.enabled"

_NAME = re.compile(r"\w+", re.ASCII)


def quote(name: str) -> str:
    """A name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def ensure_source(session: SparkSession) -> None:
    """Make the format ``mzsql`` known to a session, whether or not the distribution that does so by itself is installed, and let it
    take filters over.
    """
    from mzsql.spark.source import MzsqlDataSource  # noqa: PLC0415  imports the engine, which only a reader needs

    if importlib.util.find_spec("pyspark_mzsql") is None:
        session.dataSource.register(MzsqlDataSource)
    session.conf.set(FILTERS, "true")


class Registration:
    """The relations of one environment in one session's catalog.

    Args:
        session: the Spark session (all sessions of its application share the catalog).
        options: the data source's options that name the environment.
    """

    def __init__(self, session: SparkSession, options: Mapping[str, str]) -> None:
        self._session = session
        self._options = dict(options)
        self._made: dict[tuple[str, str], RelationInfo] = {}
        self.left_out: tuple[str, ...] = ()

    def follow(self, relations: Sequence[RelationInfo]) -> None:
        """Make what is registered equal to these relations.

        Raises:
            ObjectInUse: Spark's catalog has something else under a relation's name.
        """
        wanted = {(r.schema, r.name): r for r in relations if _NAME.fullmatch(r.name + r.schema)}
        self.left_out = tuple(
            r.full_name for r in relations if not _NAME.fullmatch(r.name + r.schema)
        )
        for key, old in list(self._made.items()):
            if wanted.get(key) != old:
                self._drop(old)
                del self._made[key]
        new = [relation for key, relation in wanted.items() if key not in self._made]
        if not new:
            return
        ensure_source(self._session)
        for schema in sorted({SOURCES, *(r.schema for r in new)}):
            self._session.sql(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
        taken = {
            (row.namespace, row.tableName)
            for schema in sorted({r.schema for r in new})
            for row in self._session.sql(f"SHOW TABLES IN {quote(schema)}").collect()
        }
        for relation in new:
            if (relation.schema, relation.name) in taken:
                self._refuse_foreign(relation)
            self._make(relation)
            self._made[relation.schema, relation.name] = relation

    def forget(self) -> None:
        """Take everything out of the session's catalog."""
        self.follow(())

    def _make(self, relation: RelationInfo) -> None:
        source = f"{quote(SOURCES)}.{quote(relation.id)}"
        view = f"{quote(relation.schema)}.{quote(relation.name)}"
        fields = spark_schema(arrow_schema(relation.desc.typ.columns, relation.desc.names))
        columns = ", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in fields)
        options = {**self._options, "relation": f"{relation.schema}.{relation.name}"}
        given = ", ".join(f"{quote(k)} = {_literal(v)}" for k, v in options.items())
        self._session.sql(f"DROP TABLE IF EXISTS {source}")
        self._session.sql(f"CREATE TABLE {source} ({columns}) USING mzsql")
        self._session.sql(
            f"CREATE OR REPLACE VIEW {view} COMMENT {_literal(self._comment(relation))} "
            f"AS SELECT * FROM {source} WITH ({given})"
        )

    def _drop(self, relation: RelationInfo) -> None:
        view = f"{quote(relation.schema)}.{quote(relation.name)}"
        self._session.sql(f"DROP VIEW IF EXISTS {view}")
        self._session.sql(f"DROP TABLE IF EXISTS {quote(SOURCES)}.{quote(relation.id)}")

    def _comment(self, relation: RelationInfo) -> str:
        return f"the {relation.kind.replace('-', ' ')} {relation.full_name} of mzsql"

    def _refuse_foreign(self, relation: RelationInfo) -> None:
        """Never replace what a user has under the name: only views that stand on our own tables."""
        name = f"{relation.schema}.{relation.name}"
        existing = self._session.catalog.getTable(name)
        if not (existing.description or "").endswith(" of mzsql"):
            raise ObjectInUse(
                f"Spark's catalog has a {existing.tableType.lower()} {name} already",
                hint=f"Rename it, or read the relation with MzSpark.sql or format('mzsql').load('{name}').",
            )
