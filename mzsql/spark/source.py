"""The Spark data source ``mzsql``: an environment's relations in any Spark session, through Spark's Python workers.

Promise: a read gives a relation's contents at one time, each row as often as it is there; by default at a time no earlier than any write
that was acknowledged before the read began. A stream gives the contents and then every change exactly once (`mzsql.spark.stream`), and a
write appends to a table in one commit (`mzsql.spark.append`). Reading disturbs nobody. Filters go down to the stored files where the
session allows it (`mzsql.spark.filters`, ``spark.sql.python.filterPushdown.enabled``). Where something cannot be done the error says why
in a sentence. Trade-off: rows pass through Python workers as Arrow, several times slower than Spark's own Parquet reader, which
`MzSpark.sql` uses. Spark's interface for Python asks for all columns of a source: the option ``columns`` names those wanted.

===========================================  ====================================================================
option                                       meaning
===========================================  ====================================================================
``env``                                      the environment's directory, or
``profile``                                  the name of a profile that has either (`mzsql.location.profiles`), or
``blob``, ``consensus``, ``oracle``          the URLs of its three stores; those with a secret are refused, as Spark shows options
``relation`` (or the argument of ``load``)   the relation's name: ``public.q3``, ``mz_internal.mz_frontiers``
``columns``                                  names with commas between them; all columns by default
``as_of``                                    the time to read at, in milliseconds; a fresh one by default
``changes``                                  ``true``: the changes, with ``_change_type`` (``insert``, ``delete``), ``_commit_version`` (the
                                             time in milliseconds) and ``_commit_timestamp`` behind the columns
``from``, ``to``                             the times of the first and the last changes; without ``from`` they begin with the
                                             earliest contents there are, as inserts
===========================================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mzsql.adapter.reader import EnvironmentReader, RelationInfo
from mzsql.persist import KeyRange
from mzsql.repr.errors import InvalidParameter
from mzsql.spark import rows
from mzsql.spark.append import TableWriter
from mzsql.spark.filters import pushed_ranges
from mzsql.spark.opened import in_one_sentence, reading
from mzsql.spark.options import Target, options_in, target, with_options
from mzsql.spark.rows import Slice
from mzsql.spark.stream import ChangeStream


class MzsqlDataSource(DataSource):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """``spark.read``, ``spark.readStream`` and ``df.write`` with ``format("mzsql")``; the module documents the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mzsql"

    def schema(self) -> StructType:
        """The relation's columns as Spark's types."""
        with in_one_sentence():
            wanted = target(self.options)
            with reading(wanted.locations) as reader:
                relation = rows.chosen(reader.relation(wanted.relation), wanted.columns)
                schema = rows.schema_of(relation, changes=wanted.changes)
                # load() passes its options with each read; a table in the catalog only keeps its columns, so the
                # options go into their metadata.
                return schema if "path" in self.options else with_options(schema, self.options)

    def reader(self, schema: StructType) -> RelationReader:
        """A reader of the relation; ``schema`` are the columns as Spark's catalog, or `schema`, gave them."""
        with in_one_sentence():
            return RelationReader(target({**options_in(schema), **self.options}), schema)

    def streamReader(self, schema: StructType) -> ChangeStream:  # noqa: N802  Spark's own name
        """A stream of the relation's contents and then its changes."""
        with in_one_sentence():
            return ChangeStream(target(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """A writer that appends to a table."""
        with in_one_sentence():
            return TableWriter(target(self.options), schema, overwrite=overwrite)


class RelationReader(DataSourceReader):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Reads one relation, or its changes, in one slice or, where it is large, in several slices by a hash of the rows."""

    def __init__(self, wanted: Target, schema: StructType) -> None:
        self._target = wanted
        self._schema = schema
        self._filters: dict[str, list[KeyRange]] = {}
        if not wanted.changes:
            wanted.refuse("contents: set changes to true", "from", "to")

    @property
    def pushFilters(self) -> _TakesFilters:  # noqa: N802  Spark's own name
        """Take over the filters that stored files can be read by; returns those left to Spark."""
        return _TakesFilters(self)

    def take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """As `pushFilters`. Only contents of stored relations are read by filters."""
        if self._target.changes:
            return filters
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = reader.relation(self._target.relation)
            if not relation.stored:
                return filters
            self._filters, left = pushed_ranges(relation.desc, filters)
            return left

    def partitions(self) -> list[InputPartition]:
        """The slices to read, all at the same timestamp."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = reader.relation(self._target.relation)
            self._check(relation)
            if self._target.changes:
                return self._slices_of_changes(reader, relation)
            as_of = self._target.as_of
            if not relation.stored:
                return [self._computed(reader, relation)]
            at = reader.fresh_timestamp() if as_of is None else as_of
            reader.check(relation, at)
            count = rows.slices(reader.stored_rows(relation, at))
            return [Slice(number, count, at, gid=relation.id) for number in range(count)]

    def _computed(self, reader: EnvironmentReader, relation: RelationInfo) -> Slice:
        """The one slice of a relation without a shard. A builtin relation is read at once: nobody else need open the
        environment for what is small, and Spark shows errors of planning on one line.
        """
        only = Slice(0, 1, self._target.as_of, gid=relation.id)
        if relation.database is None:
            read = rows.contents(reader, relation, only, self._target.columns, {})
            return replace(only, rows=rows.sent(read))
        return only

    def _slices_of_changes(
        self, reader: EnvironmentReader, relation: RelationInfo
    ) -> list[InputPartition]:
        first, last = self._target.first, self._target.last
        until = reader.fresh_timestamp() if last is None else last
        found: list[InputPartition] = []
        if first is None:
            since = reader.since(relation) or 0
            at = min(since, until)
            count = rows.slices(reader.stored_rows(relation, at))
            found = [Slice(i, count, at, snapshot=True, gid=relation.id) for i in range(count)]
            after = at
        else:
            after = first - 1
        if after < until:
            count = rows.slices(reader.stored_rows(relation, until, after))
            found += [Slice(i, count, until, after=after, gid=relation.id) for i in range(count)]
        elif first is not None:
            raise InvalidParameter(f"option from is {first}, which is after the last time, {until}")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice as Arrow batches."""
        assert isinstance(partition, Slice)
        with in_one_sentence():
            ahead = partition.rows
            table = self._read(partition) if ahead is None else rows.received(ahead)
            yield from rows.batches(table, to_arrow_schema(self._schema, timezone="UTC"))

    def _read(self, partition: Slice) -> pa.Table:
        with reading(self._target.locations) as reader:
            relation = reader.relation(self._target.relation)
            self._check(relation)
            if self._target.changes:
                return rows.changes(reader, relation, partition, self._target.columns)
            columns, filters = self._target.columns, self._filters
            return rows.contents(reader, relation, partition, columns, filters)

    def _check(self, relation: RelationInfo) -> None:
        wanted = rows.chosen(relation, self._target.columns)
        now = rows.schema_of(wanted, changes=self._target.changes)
        rows.check_schema(relation, now, self._schema)


class _TakesFilters:
    """`RelationReader.pushFilters`, which Spark calls where ``spark.sql.python.filterPushdown.enabled`` is set.

    Where it is not set, Spark refuses a reader whose class overrides this method. Reading must work without filters
    then, so this descriptor shows Spark the inherited method.
    """

    def __init__(self, reader: RelationReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)
