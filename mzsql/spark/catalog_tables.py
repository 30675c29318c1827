"""Tables of a session's catalog, many at a time.

Promise: a table has the columns, the metadata and the comment that it is given, of the format ``mzsql``. Spark's own call makes a table in
tens of milliseconds, as it plans the table once more and makes a folder for it; so in a classic session only the first one is made by it,
and the others are copies of that one's description, put into the catalog directly. Trade-off: that is not Spark's public interface, so
it is used where the session has a JVM of its own. A session of Spark Connect makes each by the same plan as its public call, and fetches
none of its rows: the public call reads the whole table once it is made.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mzsql.repr.errors import InvalidParameter


class CatalogTables:
    """Makes tables ``USING mzsql``, for as long as one update of the catalog takes."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._classic: Any = getattr(session, "_jsparkSession", None)
        self._first: Any = None

    def make(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        """Make a table that is not there.

        Raises:
            AnalysisException: it is there, or its schema is not.
            InvalidParameter: a server of Spark Connect has no data source ``mzsql``.
        """
        if self._first is not None:
            self._copy(schema, name, columns, comment)
            return
        if self._classic is None:
            self._make_on_server(schema, name, columns, comment)
            return
        self._session.catalog.createTable(
            f"`{schema}`.`{name}`", source="mzsql", schema=columns, description=comment
        )
        identifier = self._identifier(schema, name)
        self._first = self._classic.sessionState().catalog().getTableMetadata(identifier)

    def _make_on_server(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        from pyspark.sql.connect.dataframe import DataFrame  # noqa: PLC0415  needs grpcio, which a classic session does not
        from pyspark.sql.connect.plan import CreateTable  # noqa: PLC0415  likewise

        made = CreateTable(f"`{schema}`.`{name}`", None, "mzsql", comment, columns, {})
        try:
            DataFrame(made, self._session).limit(0).collect()
        except PySparkException as error:
            # The server sends it as an exception of no class that the client knows, so its condition is in the text alone.
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise InvalidParameter(
                "the server of Spark Connect does not know the format mzsql",
                hint="Install pyspark-mzsql into the Python that the server runs (its PYSPARK_PYTHON), and start it again.",
            ) from None

    def _copy(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        first = self._first
        own = {
            "identifier": self._identifier(schema, name),
            "schema": self._classic.parseDataType(columns.json()),
            "comment": self._session._jvm.scala.Option.apply(comment),
        }
        # The folder is the first one's: nothing is ever in it.
        described = first.copy(
            *(
                own.get(first.productElementName(i)) or getattr(first, f"copy$default${i + 1}")()
                for i in range(first.productArity())
            )
        )
        self._classic.sessionState().catalog().createTable(described, False, False)

    def _identifier(self, schema: str, name: str) -> Any:
        jvm = self._session._jvm
        return jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            name, jvm.scala.Option.apply(schema)
        )
