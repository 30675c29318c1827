"""Creating and dropping many tables in a session's catalog at once.

Promise: a table has the given columns, metadata and comment, and the format ``mzsql``. Spark's own call takes tens of
milliseconds for a table, since it plans the table again and creates a directory; so in a classic session only the first
table is created that way, and the others are copies of its description, added to the catalog directly. Many are dropped
directly too, without being planned once more, unless the application caches anything. The trade-off: that is not a
public interface of Spark, so it is only used where the session has a JVM of its own. A Spark Connect session creates
each table by the same plan as the public call, without the fetch of all rows that the public call does afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mzsql.repr.errors import InvalidParameter

#: Up to so many tables are dropped by statements, which is what users do.
FEW = 10


class CatalogTables:
    """Creates and drops tables ``USING mzsql``, during one update of the catalog."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._classic: Any = getattr(session, "_jsparkSession", None)
        self._copies: _Copies | None = None

    def make(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        """Create a table.

        Raises:
            AnalysisException: it exists, or its schema does not.
            InvalidParameter: a Spark Connect server has no data source ``mzsql``.
        """
        if self._copies is not None:
            self._copies.make(schema, name, columns, comment)
            return
        if self._classic is None:
            self._make_on_server(schema, name, columns, comment)
            return
        self._session.catalog.createTable(
            f"`{schema}`.`{name}`", source="mzsql", schema=columns, description=comment
        )
        self._copies = _Copies(self._session, self._classic, schema, name)

    def drop(self, tables: Sequence[tuple[str, str]]) -> None:
        """Drop tables by their schemas and names; those that are not there are none."""
        if len(tables) <= FEW or not self._may_drop_directly():
            for schema, name in tables:
                # The class's method: the object's own may have been replaced, see `mzsql.spark.register`.
                sql = f"DROP TABLE IF EXISTS `{schema}`.`{name}`"
                type(self._session).sql(self._session, sql)
            return
        named = _Identifiers(self._session)
        catalog = self._classic.sessionState().catalog()
        for schema, name in tables:
            catalog.dropTable(named.of(schema, name), True, False)

    def _may_drop_directly(self) -> bool:
        """Not where something is cached: a statement gives up what is cached of the table it drops."""
        classic = self._classic
        return classic is not None and bool(classic.sharedState().cacheManager().isEmpty())

    def _make_on_server(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        from pyspark.sql.connect.dataframe import DataFrame  # noqa: PLC0415  needs grpcio, which a classic session does not
        from pyspark.sql.connect.plan import CreateTable  # noqa: PLC0415  likewise

        made = CreateTable(f"`{schema}`.`{name}`", None, "mzsql", comment, columns, {})
        try:
            DataFrame(made, self._session).limit(0).collect()
        except PySparkException as error:
            # The client does not know the server's exception class, so the error condition is only in the text.
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise InvalidParameter(
                "the server of Spark Connect does not know the format mzsql",
                hint="Install pyspark-mzsql into the Python that the server runs (its PYSPARK_PYTHON), and start it again.",
            ) from None


class _Identifiers:
    """Names of tables as the JVM has them.

    Each call of the JVM, the look-up of a class included, is a round trip of 0.1 ms: what is the same for all tables is
    asked for once.
    """

    def __init__(self, session: SparkSession) -> None:
        self._option = session._jvm.scala.Option.apply
        self._identifier = session._jvm.org.apache.spark.sql.catalyst.TableIdentifier
        self._schemas: dict[str, Any] = {}

    def of(self, schema: str, name: str) -> Any:
        """The identifier of a table in a schema."""
        if schema not in self._schemas:
            self._schemas[schema] = self._option(schema)
        return self._identifier(name, self._schemas[schema])


class _Copies:
    """Makes tables as copies of one that is there, with few calls of the JVM as in `_Identifiers`."""

    def __init__(self, session: SparkSession, classic: Any, schema: str, name: str) -> None:
        jvm = session._jvm
        self._parse = classic.parseDataType
        self._option = jvm.scala.Option.apply
        self._identifiers = _Identifiers(session)
        self._catalog = classic.sessionState().catalog()
        self._first = self._catalog.getTableMetadata(self._identifiers.of(schema, name))
        names = [self._first.productElementName(i) for i in range(self._first.productArity())]
        self._fields = {
            field: getattr(self._first, f"copy$default${i + 1}")() for i, field in enumerate(names)
        }

    def make(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        """Create a table. All share the first one's directory: nothing is ever in it."""
        own = {
            "identifier": self._identifiers.of(schema, name),
            "schema": self._parse(columns.json()),
            "comment": self._option(comment),
        }
        described = self._first.copy(*{**self._fields, **own}.values())
        self._catalog.createTable(described, False, False)
