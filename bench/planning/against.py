"""What planning is compared with: sqlglot's own optimizer, and Spark's analysis and optimization, of the same text over the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from pyspark.sql import SparkSession
from sqlglot.optimizer import optimize
from warehouse import Warehouse

from mzsql.repr.types import SqlType

_ARROW = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "text": pa.string(),
    "date": pa.date32(),
}
_ROWS = 1


class Sqlglot:
    """Parses and optimizes with the columns and types of the tables known."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._schema = {
            item.name.item: {
                name: str(column.type)
                for name, column in zip(item.desc.names, item.desc.typ.columns, strict=True)
            }
            for item in warehouse.catalog.items.values()
            if item.desc is not None
        }

    def plan(self, text: str) -> Any:
        tree = sqlglot.parse_one(text, dialect="postgres")
        return optimize(tree, schema=self._schema, dialect="postgres")


class Spark:
    """Parses, analyses and optimizes over Parquet files (a relation without rows would be optimized away)."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        builder = SparkSession.builder.master("local[1]").appName("bench-planning")
        builder = builder.config("spark.ui.enabled", "false")
        self._session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")
        for item in warehouse.catalog.items.values():
            if item.desc is None:
                continue
            schema = pa.schema(
                [
                    pa.field(name, _arrow(column.type))
                    for name, column in zip(item.desc.names, item.desc.typ.columns, strict=True)
                ]
            )
            path = folder / f"{item.name.item}.parquet"
            nothing = [pa.nulls(_ROWS, field.type) for field in schema]
            pq.write_table(pa.table(nothing, schema=schema), path)
            self._session.read.parquet(str(path)).createOrReplaceTempView(item.name.item)

    def plan(self, text: str) -> Any:
        # `spark.sql` parses and analyses; the optimized plan is made when it is first asked for.
        return self._session.sql(text)._jdf.queryExecution().optimizedPlan()

    def close(self) -> None:
        self._session.stop()


def _arrow(typ: SqlType) -> pa.DataType:
    if typ.kind == "numeric":
        return pa.decimal128(15, typ.effective_scale)
    return _ARROW[typ.kind]
