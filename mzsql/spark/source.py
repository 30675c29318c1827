"""The Spark data source ``mzsql``: an environment's relations in any Spark session, through Spark's Python workers.

Promise: a read gives a relation's contents at one time, each row as often as it is there; by default at a time no earlier than any write
that was acknowledged before the read began. It opens the environment for reading only and disturbs nobody. Where it cannot, the error
says why in a sentence. Trade-off: rows pass through Python workers as Arrow, several times slower than Spark's own Parquet reader, which
`MzSpark.sql` uses.

===========================================  ====================================================================
option                                       meaning
===========================================  ====================================================================
``env``                                      the environment's directory, or
``profile``                                  the name of a profile that has either (`mzsql.location.profiles`), or
``blob``, ``consensus``, ``oracle``          the URLs of its three stores; those with a secret are refused, as Spark shows options
``relation`` (or the argument of ``load``)   the relation's name: ``public.q3``, ``mz_internal.mz_frontiers``
``as_of``                                    the time to read at, in milliseconds; a fresh one by default
===========================================  ====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mzsql.adapter.reader import EnvironmentReader, RelationInfo, open_read_only
from mzsql.compute.engines.relations import spark_schema
from mzsql.compute.peek.rows import expand, named
from mzsql.location import shown_url
from mzsql.repr.errors import DatatypeMismatch, InvalidParameter
from mzsql.repr.types import arrow_schema

#: A slice of a relation that one task reads has about this many stored updates at most.
SLICE_ROWS = 2_000_000
#: Rows of an Arrow batch handed to Spark.
BATCH_ROWS = 65_536

_TIME = re.compile("[0-9]{1,19}")
_PLACES = ("env", "profile", "blob", "consensus", "oracle")
_OPTIONS = frozenset({*_PLACES, "relation", "path", "as_of"})


@dataclass(frozen=True)
class Target:
    """What the options name: where the environment is, which relation, and at what time (None: a fresh one)."""

    locations: tuple[tuple[str, str], ...]
    relation: str
    as_of: int | None

    def open(self) -> EnvironmentReader:
        """A reader of the environment, to be closed by the caller."""
        where = dict(self.locations)
        return open_read_only(
            where.get("env"),
            blob=where.get("blob"),
            consensus=where.get("consensus"),
            oracle=where.get("oracle"),
            profile=where.get("profile"),
        )


@dataclass
class Slice(InputPartition):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """The rows of a relation whose hash is `number` modulo `count`, at `as_of` (None: a fresh time, only for a whole relation)."""

    number: int
    count: int
    as_of: int | None


def target(options: Mapping[str, str]) -> Target:
    """What the options name.

    Raises:
        InvalidParameter: an option is missing, unknown or not of its kind.
    """
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise InvalidParameter(
            f"unknown option {unknown[0]!r} of the data source mzsql",
            hint=f"It knows {', '.join(sorted(_OPTIONS))}.",
        )
    relation = given.get("relation") or given.get("path")
    if not relation:
        raise InvalidParameter(
            "the data source mzsql needs a relation",
            hint='Name it as in load("public.orders"), or with option("relation", "public.orders").',
        )
    locations = {key: given[key] for key in _PLACES if key in given}
    secret = next((key for key, place in locations.items() if shown_url(place) != place), None)
    if secret is not None:
        raise InvalidParameter(
            f"option {secret} holds a secret, and Spark shows options to everyone: {shown_url(locations[secret])}",
            hint="Write the URLs into a profile (mzsql.toml, or variables such as MZSQL_PROFILE_PROD_CONSENSUS) and name it with "
            'option("profile", "prod").',
        )
    if not locations:
        raise InvalidParameter(
            "the data source mzsql needs an environment",
            hint='Name its directory with option("env", "/path/to/env"), or a profile with option("profile", "prod").',
        )
    text = given.get("as_of")
    if text is not None and not (_TIME.fullmatch(text.strip()) and int(text) < 2**63):
        raise InvalidParameter(
            f"option as_of must be a time in milliseconds since 1970, not {text[:40]!r}"
        )
    return Target(tuple(sorted(locations.items())), relation, None if text is None else int(text))


class MzsqlDataSource(DataSource):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """``spark.read.format("mzsql")``; see the module for its options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mzsql"

    def schema(self) -> StructType:
        """The relation's columns as Spark's types."""
        with target(self.options).open() as reader:
            return _schema(reader.relation(target(self.options).relation))

    def reader(self, schema: StructType) -> RelationReader:
        """A reader of the relation; ``schema`` is what Spark's catalog, or `schema`, said its columns are."""
        return RelationReader(target(self.options), schema)


class RelationReader(DataSourceReader):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Reads one relation, in one slice or, where it is large, in several that hash its rows apart."""

    def __init__(self, wanted: Target, schema: StructType) -> None:
        self._target = wanted
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The slices to read; several agree on one time."""
        with self._target.open() as reader:
            relation = reader.relation(self._target.relation)
            self._check(relation)
            if not relation.stored:
                return [Slice(0, 1, self._target.as_of)]
            as_of = self._target.as_of
            at = reader.fresh_timestamp() if as_of is None else as_of
            stored = sum(part.rows for part in reader.parts(relation, at))
            count = -(-stored // SLICE_ROWS)
            if count <= 1:
                return [Slice(0, 1, as_of)]
            return [Slice(number, count, at) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice as Arrow batches."""
        assert isinstance(partition, Slice)
        with self._target.open() as reader:
            relation = reader.relation(self._target.relation)
            self._check(relation)
            rows = (
                reader.rows(relation, partition.as_of)
                if partition.count == 1
                else _slice_rows(reader, relation, partition)
            )
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        yield from rows.cast(wanted).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)

    def _check(self, relation: RelationInfo) -> None:
        now = _schema(relation)
        if [(f.name, f.dataType) for f in now] != [(f.name, f.dataType) for f in self._schema]:
            raise DatatypeMismatch(
                f"the columns of {relation.full_name} are {now.simpleString()}, "
                f"not {self._schema.simpleString()} as Spark was told",
                hint="The relation was made anew: register the environment's relations again, or read without a schema.",
            )


def _schema(relation: RelationInfo) -> StructType:
    return spark_schema(arrow_schema(relation.desc.typ.columns, relation.desc.names))


def _slice_rows(reader: EnvironmentReader, relation: RelationInfo, part: Slice) -> pa.Table:
    """The rows of one slice: of every stored part only those that hash into it, then updates of one row added up."""
    assert part.as_of is not None
    with duckdb.connect() as engine:
        engine.execute("SET threads = 1")
        kept = []
        for stored in reader.parts(relation, part.as_of):
            updates = stored.to_arrow()
            row = [name for name in updates.column_names if name not in ("mz_time", "mz_diff")]
            values = [duckdb.ColumnExpression(name) for name in row]
            number = duckdb.FunctionExpression("hash", *values)
            mine = number % duckdb.ConstantExpression(part.count) == duckdb.ConstantExpression(
                part.number
            )
            early = duckdb.ColumnExpression("mz_time") <= duckdb.ConstantExpression(part.as_of)
            chosen = engine.from_arrow(updates).filter(mine & early)
            kept.append(chosen.project(*row, "mz_diff").to_arrow_table())
        updates = pa.concat_tables(kept)
        names = ", ".join(f'"{name}"' for name in updates.column_names[:-1])
        summed = engine.from_arrow(updates).aggregate(
            f'{names}, sum("mz_diff")::bigint AS "mz_diff"', names
        )
        consolidated = summed.filter('"mz_diff" <> 0').to_arrow_table()
    return named(expand(consolidated, relation.full_name), relation.desc)
