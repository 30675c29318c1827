"""What commits few rows at a time, the same way: a shard on files and SQLite, a Delta table, an Iceberg table on a SQLite catalog.

Each keeps its handle open, as a program that commits all day would.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any, Protocol

import lineitem
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from mzsql.persist import PersistClient, UpperMismatch

logging.getLogger("pyiceberg").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="pyiceberg")


class Store(Protocol):
    """One table that is committed to."""

    def prepare(self, rows: pa.Table) -> Any:
        """What `commit` takes, made outside of the timing."""

    def commit(self, prepared: Any) -> None:
        """Append the rows as one commit."""

    def read(self) -> int:
        """All rows into memory, seen from the open handle; how many."""

    def read_anew(self) -> int:
        """The same from a handle opened for it."""

    def close(self) -> None:
        """Give the handle up."""


class Shard:
    """A shard on ``file:`` and ``sqlite:`` with maintenance in the background. Other processes may be at it too."""

    def __init__(self, folder: Path, schema: pa.Schema, shard_id: str | None = None) -> None:
        self.urls = {"blob": f"file:{folder}/blob", "consensus": f"sqlite:{folder}/consensus.db"}
        self.client = PersistClient.open(**self.urls)
        self.shard_id = self.client.new_shard_id() if shard_id is None else shard_id
        self.schema = schema
        self.writer = self.client.open_writer(self.shard_id, schema)
        self.upper = self.writer.fetch_upper()
        self.reader: Any = None

    def prepare(self, rows: pa.Table) -> pa.Table:
        return lineitem.updates(rows, self.upper)

    def commit(self, prepared: pa.Table) -> None:
        self.writer.compare_and_append(
            prepared, expected_upper=self.upper, new_upper=self.upper + 1
        )
        self.upper += 1

    def commit_contended(self, rows: pa.Table) -> None:
        """Append at whatever the upper is, as often as it takes."""
        while True:
            try:
                return self.commit(self.prepare(rows))
            except UpperMismatch as lost:
                self.upper = lost.current

    def read(self) -> int:
        if self.reader is None:
            self.reader = self.client.open_reader(self.shard_id)
        return self._read(self.reader)

    def _read(self, reader: Any) -> int:
        return int(pc.sum(reader.snapshot_arrow(self.upper - 1)["mz_diff"]).as_py() or 0)

    def read_anew(self) -> int:
        with PersistClient.open(**self.urls) as client:
            return self._read(client.open_reader(self.shard_id))

    def close(self) -> None:
        self.client.close()


class Delta:
    """A Delta table through delta-rs, which never fsyncs."""

    def __init__(self, folder: Path, schema: pa.Schema, path: str | None = None) -> None:
        if path is None:
            path = str(folder / "delta")
            DeltaTable.create(path, schema)
        self.path = path
        self.table = DeltaTable(path)

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def commit(self, prepared: pa.Table) -> None:
        write_deltalake(self.table, prepared, mode="append")

    commit_contended = commit

    def read(self) -> int:
        self.table.update_incremental()
        return self.table.to_pyarrow_table().num_rows

    def read_anew(self) -> int:
        return DeltaTable(self.path).to_pyarrow_table().num_rows

    def close(self) -> None:
        del self.table


class Iceberg:
    """An Iceberg table through pyiceberg, its catalog in SQLite."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        (folder / "warehouse").mkdir()
        self._properties = {
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.catalog = SqlCatalog("bench", **self._properties)
        self.catalog.create_namespace("bench")
        self.table = self.catalog.create_table("bench.lineitem", schema)

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def commit(self, prepared: pa.Table) -> None:
        self.table.append(prepared)

    def read(self) -> int:
        return self.table.refresh().scan().to_arrow().num_rows

    def read_anew(self) -> int:
        catalog = SqlCatalog("bench", **self._properties)
        try:
            return catalog.load_table("bench.lineitem").scan().to_arrow().num_rows
        finally:
            catalog.close()

    def close(self) -> None:
        self.catalog.close()


STORES = {"mzsql.persist": Shard, "delta-rs": Delta, "pyiceberg": Iceberg}
