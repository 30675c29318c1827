"""Creating many tables in a session's catalog at once.

Promise: a table has the given columns, metadata and comment, and the format ``mzsql``. Spark's own call takes tens of
milliseconds for a table, since it plans the table again and creates a directory; so in a classic session only the first
table is created that way, and the others are copies of its description, added to the catalog directly. The trade-off:
that is not a public interface of Spark, so it is only used where the session has a JVM of its own. A Spark Connect
session creates each table by the same plan as the public call, without the fetch of all rows that the public call does
afterwards.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mzsql.repr.errors import InvalidParameter


class CatalogTables:
    """Creates tables ``USING mzsql``, during one update of the catalog."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._classic: Any = getattr(session, "_jsparkSession", None)
        self._first: Any = None

    def make(self, schema: str, name: str, columns: StructType, comment: str) -> None:
        """Create a table.

        Raises:
            AnalysisException: it exists, or its schema does not.
            InvalidParameter: a Spark Connect server has no data source ``mzsql``.
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
            # The client does not know the server's exception class, so the error condition is only in the text.
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
        # All share the first table's directory: nothing is ever in it.
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
