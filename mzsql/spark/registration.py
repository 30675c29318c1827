"""An environment's relations in a Spark session's own catalog, for plain ``spark.sql`` and every tool on the session.

Promise: each relation is a table with its name in its schema (``mz_internal.mz_hydration_statuses``, ``public.q3``),
and live: every query reads it anew. `Registration.follow` makes the catalog equal to a list of relations, and only
touches what changed.

A relation is a table ``USING mzsql`` whose first column's metadata says where the environment is
(`mzsql.spark.options`). It is created (`mzsql.spark.catalog_tables`) without parsing a statement or asking a Python
worker for its columns. The trade-off: names with characters other than letters, digits and underscores, which Spark's
catalog refuses, and relations without columns are left out; `Registration.left_out` lists them, and `MzSpark.sql` can
read them all the same.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from mzsql.adapter.reader import RelationInfo
from mzsql.compute.engines.paths import is_connect
from mzsql.compute.engines.relations import spark_schema
from mzsql.repr.errors import InvalidParameter, ObjectInUse
from mzsql.repr.types import arrow_schema
from mzsql.spark.catalog_tables import CatalogTables
from mzsql.spark.options import with_options

#: The setting that lets Python data sources take filters over.
FILTERS = "spark.sql.python.filterPushdown.enabled"

#: The format that Spark finds by itself where pyspark-mzsql is installed.
FORMAT = "mzsql"

#: Up to so many new relations are looked up in the catalog by name; for more, the catalog is listed.
_FEW = 10

_NAME = re.compile(r"\w+", re.ASCII)


def quote(name: str) -> str:
    """A name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _takes(relation: RelationInfo) -> bool:
    """Whether Spark's catalog accepts the relation."""
    return bool(relation.desc.arity and _NAME.fullmatch(relation.name + relation.schema))


def ensure_source(session: SparkSession) -> None:
    """Register the format ``mzsql`` in a session, where the distribution that does so automatically is not installed,
    and enable filter pushdown.

    Raises:
        InvalidParameter: the distribution is installed here, and not in the Python that Spark runs.
    """
    from mzsql.spark.source import MzsqlDataSource  # noqa: PLC0415  imports the engine, which only a reader needs

    if importlib.util.find_spec("pyspark_mzsql") is None:
        session.dataSource.register(MzsqlDataSource)
    elif not is_connect(session):  # a server is asked when the first table is made
        _require_found(session)
    session.conf.set(FILTERS, "true")


def _require_found(session: SparkSession) -> None:
    manager = session._jsparkSession.sessionState().dataSourceManager()
    if manager.dataSourceExists(FORMAT):
        return
    utils = getattr(session._jvm, "org.apache.spark.api.python.PythonUtils$")
    asked = getattr(utils, "MODULE$").defaultPythonExec()
    raise InvalidParameter(
        f"Spark does not find the format {FORMAT}: the Python that it runs, {asked}, has no pyspark-mzsql that works",
        hint=f"Set PYSPARK_PYTHON={sys.executable} before Spark starts, and PYSPARK_DRIVER_PYTHON to the same or not at all.",
    )


class Registration:
    """The relations of one environment in one session's catalog.

    Args:
        session: the Spark session (all sessions of its application share the catalog).
        options: the data source options that name the environment.
    """

    def __init__(self, session: SparkSession, options: Mapping[str, str]) -> None:
        self._session = session
        self._options = dict(options)
        self._made: dict[tuple[str, str], RelationInfo] = {}
        self.left_out: tuple[str, ...] = ()

    def follow(self, relations: Sequence[RelationInfo]) -> None:
        """Make the registered tables equal to these relations.

        Raises:
            InvalidParameter: the Python that Spark runs has no data source ``mzsql``.
            ObjectInUse: Spark's catalog has something else under a relation's name.
        """
        wanted = {(r.schema, r.name): r for r in relations if _takes(r)}
        self.left_out = tuple(r.full_name for r in relations if not _takes(r))
        tables = CatalogTables(self._session)
        gone = [key for key, old in self._made.items() if wanted.get(key) != old]
        tables.drop(gone)
        for key in gone:
            del self._made[key]
        new = [relation for key, relation in wanted.items() if key not in self._made]
        if not new:
            return
        ensure_source(self._session)
        for schema in sorted({r.schema for r in new} - {schema for schema, _ in self._made}):
            self._sql(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
        taken = self._taken(new)
        for relation in new:
            if (relation.schema, relation.name) in taken:
                self._refuse_foreign(relation)
                tables.drop([(relation.schema, relation.name)])
            self._make(tables, relation)
            self._made[relation.schema, relation.name] = relation

    def forget(self) -> None:
        """Remove everything from the session's catalog."""
        self.follow(())

    def _taken(self, new: Sequence[RelationInfo]) -> set[tuple[str, str]]:
        """Those of the relations' names that the catalog has already."""
        if len(new) <= _FEW:
            return {
                (r.schema, r.name)
                for r in new
                if self._session.catalog.tableExists(f"{quote(r.schema)}.{quote(r.name)}")
            }
        return {
            (row.namespace, row.tableName)
            for schema in sorted({r.schema for r in new})
            for row in self._sql(f"SHOW TABLES IN {quote(schema)}").collect()
        }

    def _make(self, tables: CatalogTables, relation: RelationInfo) -> None:
        fields = spark_schema(arrow_schema(relation.desc.typ.columns, relation.desc.names))
        options = {**self._options, "relation": f"{relation.schema}.{relation.name}"}
        columns = with_options(fields, options)
        tables.make(relation.schema, relation.name, columns, self._comment(relation))

    def _sql(self, text: str) -> DataFrame:
        # The class's method: the object's own may have been replaced, see `mzsql.spark.register`.
        return type(self._session).sql(self._session, text)

    def _comment(self, relation: RelationInfo) -> str:
        return f"the {relation.kind.replace('-', ' ')} {relation.full_name} of mzsql"

    def _refuse_foreign(self, relation: RelationInfo) -> None:
        """Refuse to replace a user's table of this name; only our own tables are replaced."""
        name = f"{relation.schema}.{relation.name}"
        existing = self._session.catalog.getTable(name)
        if not (existing.description or "").endswith(" of mzsql"):
            raise ObjectInUse(
                f"Spark's catalog has a {existing.tableType.lower()} {name} already",
                hint=f"Rename it, or read the relation with MzSpark.sql or format('mzsql').load('{name}').",
            )
