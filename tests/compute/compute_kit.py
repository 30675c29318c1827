"""What compute's tests share: inputs that are plain shards, plans built by hand, and an independent engine to compare with."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from mzsql.compute.controller.client import ReplicaClient
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.protocol import CreateDataflow
from mzsql.compute.replica.replica import Replica
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import AggregateExpr, Call, Column, ColumnOrder, Literal
from mzsql.lir import plan as lir
from mzsql.lir.sealed import SealedDataflow
from mzsql.location import open_blob, open_consensus
from mzsql.persist import PersistClient
from mzsql.repr.frontier import less_equal
from mzsql.repr.types import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    TEXT,
    ColumnType,
    RelationType,
    arrow_schema,
)

INT = ColumnType(INTEGER)
BIG = ColumnType(BIGINT)
TXT = ColumnType(TEXT)


class Pathless:
    """A Blob store with every ability of another's but paths."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        if name in ("spark_path", "make_durable"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class ForeignPaths(Pathless):
    """A Blob store whose paths are of a file system that Spark has not."""

    def spark_path(self, key):
        return f"nofs://bucket/{key}"


class ShardHold:
    def __init__(self, reader):
        self.reader = reader

    @property
    def since(self):
        return self.reader.since

    def downgrade(self, since):
        if self.reader.since != since and less_equal(self.reader.since, since):
            self.reader.downgrade_since(since)

    def release(self):
        self.reader.release()


class ShardStorage:
    """A StorageReader whose collections are plain shards."""

    def __init__(self, persist: PersistClient):
        self.persist = persist
        self.shards: dict[str, tuple[str, bool]] = {}
        self.readers = {}
        self.callbacks: list[Callable[[], None]] = []
        self.lock = threading.RLock()
        self.writers = {}
        self.holders = itertools.count()

    def add(self, gid, columns, *, shard=None, errors=False):
        schema = arrow_schema(columns)
        if errors:
            schema = schema.append(pa.field("mz_error", pa.string()))
        shard = shard or self.persist.new_shard_id()
        writer, reader = self.persist.open_shard(shard, schema)
        self.shards[gid] = (shard, errors)
        self.writers[gid], self.readers[gid] = writer, reader
        return shard

    def write(self, gid, rows, *, upper, notify=True):
        """rows: (values…, time, diff)."""
        writer = self.writers[gid]
        schema = writer.schema
        full = pa.schema([*schema, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in full]
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, full, strict=True)], schema=full
        )
        writer.compare_and_append(
            table if rows else None, expected_upper=writer.upper, new_upper=upper
        )
        if notify:
            self.notify()

    def notify(self):
        for callback in list(self.callbacks):
            callback()

    # --- StorageReader ---
    def upper(self, gid):
        return self.readers[gid].fetch_upper()

    def seen_upper(self, gid):
        return self.upper(gid)

    def since(self, gid):
        return self.readers[gid].since

    def wait_for_upper(self, gid, past, timeout):
        return self.readers[gid].wait_for_upper(past, timeout=timeout)

    def awaited(self):
        return []

    def updates(self, gid, lower, upper):
        return self.readers[gid].updates(lower, upper)

    def small_updates(self, gid, lower, upper, *, rows, size):
        return self.readers[gid].small_updates(lower, upper, rows=rows, size=size)

    def parts_between(self, gid, lower, upper):
        return self.readers[gid].parts_between(lower, upper)

    def parts(self, gid, as_of):
        return self.readers[gid].parts(as_of)

    def has_errors(self, gid):
        return self.shards[gid][1]

    def hold(self, gid, since):
        reader = self.persist.open_critical_reader(
            self.shards[gid][0], f"hold-{id(self)}-{next(self.holders)}"
        )
        hold = ShardHold(reader)
        hold.downgrade(since)
        return hold

    def moved(self, gid):
        pass

    def watch(self, callback):
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def contents(self, gid, as_of) -> pa.Table:
        return self.readers[gid].snapshot_arrow(as_of)


class Registry:
    """Outlives the controllers of a test, as the catalog outlives processes."""

    def __init__(self):
        self.names: dict[tuple[str, str], str] = {}
        self.ours = True

    def arrangement_shard(self, replica, fingerprint):
        return self.names.get((replica, fingerprint))

    def update(self, replica, shards):
        for fingerprint, shard in shards.items():
            self.names.pop((replica, fingerprint), None)
            if shard is not None:
                self.names[replica, fingerprint] = shard

    def entries(self, replica):
        return {name: shard for (r, name), shard in self.names.items() if r == replica}

    def runs(self, replica):  # noqa: ARG002
        return self.ours


class Sink:
    """Keeps statuses as a collection does: rows with counts; and the order in which they came."""

    def __init__(self):
        self.rows: Counter = Counter()
        self.log: list = []
        self.told: set = set()
        self.statuses: dict = {}
        self.introspection: dict = {}
        self.lock = threading.Lock()

    def connected(self, replica_id):
        with self.lock:
            self.told = {one for one in self.told if one[1] != replica_id}

    def stands(self, status):
        with self.lock:
            one = status.object_id, status.replica_id
            self.statuses.setdefault(one, []).append(status)
            if status.state == "dropped":
                self._forget(*one)
                self._forget_introspection(*one)

    def refreshed(self, replica_id, stats):
        pass

    def introspected(self, relation, replica_id, updates, *, anew):
        with self.lock:
            known = self.introspection.setdefault(relation, Counter())
            if anew:
                for row in [row for row in known if row[0] == replica_id]:
                    del known[row]
            for row, diff in updates:
                known[(replica_id, *row)] += diff
                assert known[(replica_id, *row)] in (0, 1)

    def keep(self, dataflows):
        with self.lock:
            for row in list(self.rows):
                if (row.object_id, row.replica_id) not in dataflows:
                    self.rows[row] = 0

    def _forget_introspection(self, object_id, replica_id):
        for known in self.introspection.values():
            for row in [row for row in known if row[:2] == (replica_id, object_id)]:
                del known[row]

    def _forget(self, object_id, replica_id):
        for row in self.rows:
            if (row.object_id, row.replica_id) == (object_id, replica_id):
                self.rows[row] = 0

    def update(self, rows):
        with self.lock:
            for row, diff in rows:
                one = row.object_id, row.replica_id
                if one not in self.told:
                    self.told.add(one)
                    self._forget(*one)
                self.rows[row] += diff
                self.log.append((row, diff))
                assert self.rows[row] in (0, 1), (row, self.rows[row])

    def delete_replica(self, replica_id):
        with self.lock:
            for row in self.rows:
                if row.replica_id == replica_id:
                    self.rows[row] = 0
            for known in self.introspection.values():
                for row in [row for row in known if row[0] == replica_id]:
                    del known[row]

    def current(self):
        with self.lock:
            return {row for row, count in self.rows.items() if count}


class World:
    """A persist location, inputs, and whatever outlives a controller."""

    def __init__(self, persist, spark):
        self.persist = persist
        self.spark = spark
        self.storage = ShardStorage(persist)
        self.registry = Registry()
        self.sink = Sink()

    def with_inputs(self) -> World:
        """With orders as `u1` and customers as `u2`."""
        self.storage.add("u1", ORDERS)
        self.storage.add("u2", CUSTOMERS)
        return self

    def controller(self, *, replica="r1", persist=None, exports=None, **settings) -> Controller:
        settings.setdefault("since_seconds", 0.0)
        settings.setdefault("retry_seconds", 0.05)
        settings.setdefault("timeout", 60.0)
        # Hydrations are small here: on Spark all the same, unless a test says otherwise.
        settings.setdefault("hydrate_here_bytes", -1)
        given = ComputeSettings(**settings)
        return Controller(self, persist or self.persist, replica, given, exports)


def no_spark():
    """Instead of a Spark session, where all is to run in process."""
    raise AssertionError("all of this runs in process")


@contextmanager
def in_files(spark, folder) -> Iterator[World]:
    """A world in a folder's files, with its inputs."""
    with PersistClient.open(
        blob=f"file:{folder}/blob", consensus=f"sqlite:{folder}/consensus.db"
    ) as persist:
        yield World(persist, spark).with_inputs()


@contextmanager
def in_memory(spark=no_spark) -> Iterator[World]:
    """A world in this process's memory, with its inputs; persist does nothing by itself."""
    with PersistClient(open_blob("mem:"), open_consensus("mem:"), background=False) as persist:
        yield World(persist, spark).with_inputs()


@contextmanager
def with_rows(spark=no_spark) -> Iterator[World]:
    """As `in_memory`, with an order and a customer, complete until 3."""
    with in_memory(spark) as made:
        made.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
        made.storage.write("u2", [(1, "north", 1, 1)], upper=4)
        yield made


class Controller(ReplicaClient):
    """A replica in this process, commanded as a controller does; each command has been taken when its call returns.

    `replica` is the replica itself.
    """

    def __init__(self, world, persist, replica_id, settings, exports=None):
        def connect(first, respond):
            self.replica = Replica(
                first,
                respond,
                persist=persist,
                spark=world.spark,
                storage=world.storage,
                registry=world.registry,
                exports=exports,
            )
            return self.replica

        super().__init__(connect, replica_id, settings, world.storage, world.sink)

    def install(self, gid, desc, *, output_shard, as_of, name, refresh=None):
        sealed = SealedDataflow.of(desc)
        made = CreateDataflow(gid, name, sealed, output_shard, as_of, refresh=refresh)
        self.create_dataflow(made)
        assert self.settle(self.settings.timeout)

    def drop(self, gid):
        super().drop(gid)
        assert self.settle(self.settings.timeout)

    def gone(self, *gids):
        """Wait until nothing is left of dataflows that were dropped."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: not self._dataflows.keys() & set(gids), self.settings.timeout
            )

    def retire_unused(self):
        """How many arrangements were given up."""
        before = self.replica._arrangements._registry.entries(self.replica_id)
        self._initialized = False
        self.initialization_complete()
        assert self.settle(self.settings.timeout)
        return len(before) - len(self.replica._arrangements._registry.entries(self.replica_id))


# --- plans ---


def get(lir_id, gid, columns):
    identity = MapFilterProject.identity(len(columns))
    return lir.Get(
        lir_id, gid, lir.AvailableCollections(True), lir.GetCollection(identity), tuple(columns)
    )


def arranged_by(key: Sequence[int], arity: int) -> lir.ArrangementForm:
    rest = tuple(c for c in range(arity) if c not in key)
    order = (*key, *rest)
    permutation = tuple(order.index(c) for c in range(arity))
    return lir.ArrangementForm(tuple(Column(c) for c in key), permutation, rest)


def arrange(lir_id, plan, key, columns):
    form = arranged_by(key, len(columns))
    available = lir.AvailableCollections(False, (form,), tuple(columns))
    return lir.ArrangeBy(lir_id, plan, None, available)


def sum_of(column):
    return AggregateExpr("sum_bigint", Column(column), False, BIGINT)


def count_star():
    return AggregateExpr("count", Literal(True, BOOLEAN), False, BIGINT, nullable=False)


def reduce_sum_count(lir_id, plan, *, key, value, arity):
    """key, sum(value), count(*)."""
    aggregates = (sum_of(value), count_star())
    values = MapFilterProject(arity, (Literal(True, BOOLEAN),), (), (value, arity))
    keys = MapFilterProject(arity, (), (), tuple(key))
    simple = tuple(lir.IndexedAggregate(i, i, a) for i, a in enumerate(aggregates))
    return lir.Reduce(
        lir_id,
        plan,
        None,
        lir.KeyValPlan(keys, values),
        lir.ReduceAccumulable(aggregates, simple, ()),
        MapFilterProject.identity(len(key) + 2),
    )


def reduce_min_max(lir_id, plan, *, key, value, arity):
    """key, min(value), max(value)."""
    aggregates = tuple(
        AggregateExpr(f"{name}_bigint", Column(value), False, BIGINT) for name in ("min", "max")
    )
    return lir.Reduce(
        lir_id,
        plan,
        None,
        lir.KeyValPlan(
            MapFilterProject(arity, (), (), tuple(key)),
            MapFilterProject(arity, (), (), (value, value)),
        ),
        lir.ReduceHierarchical(aggregates, (0, 0), (16,)),
        MapFilterProject.identity(len(key) + 2),
    )


def read_back(lir_id, reduce, key_arity, columns):
    """The arrangement that a Reduce puts out, as raw rows."""
    key = tuple(Column(i) for i in range(key_arity))
    return lir.ArrangeBy(lir_id, reduce, key, lir.AvailableCollections(True, (), tuple(columns)))


def equi_join(lir_id, left, right, *, left_key, right_key, left_arity, right_arity):
    """A differential join on one column each; output: left's columns, then right's."""
    rest = tuple(c for c in range(right_arity) if c != right_key)
    left_rest = tuple(c for c in range(left_arity) if c != left_key)
    width = 1 + len(left_rest) + len(rest)
    position = {("l", left_key): 0, ("r", right_key): 0}
    position |= {("l", c): 1 + i for i, c in enumerate(left_rest)}
    position |= {("r", c): 1 + len(left_rest) + i for i, c in enumerate(rest)}
    output = tuple(position["l", c] for c in range(left_arity)) + tuple(
        position["r", c] for c in range(right_arity)
    )
    stage = lir.LinearStage(
        1,
        (Column(left_key),),
        left_rest,
        (Column(right_key),),
        MapFilterProject(width, (), (), output),
    )
    join = lir.LinearJoin(0, (Column(left_key),), (stage,), None)
    return lir.Join(lir_id, (left, right), join)


def top(lir_id, plan, *, group, order, limit, arity):
    kind = lir.TopKPlan(
        "Basic",
        tuple(group),
        tuple(ColumnOrder(c, desc, not desc) for c, desc in order),
        Literal(limit, BIGINT),
        0,
        arity,
    )
    return lir.TopK(lir_id, plan, kind)


ORDERS = (INT, BIG, TXT)  # customer, amount, note
CUSTOMERS = (INT, TXT)  # id, region


def dataflow(gid, plan, columns, sources, *, export=None, indexes=()):
    """`sources`: {gid: columns}."""
    imports = tuple(lir.SourceImport(g, RelationType(tuple(c))) for g, c in sources.items())
    typ = RelationType(tuple(columns))
    export = export or lir.MaterializedViewExport(gid)
    built = gid if isinstance(export, lir.MaterializedViewExport) else "t1"
    return lir.DataflowDescription(
        imports, tuple(indexes), (lir.BuildDesc(built, plan, typ),), export
    )


def joined_orders(first=0):
    """orders ⋈ customers on orders.customer = customers.id: lir ids first … first + 4."""
    orders = arrange(first + 1, get(first, "u1", ORDERS), [0], ORDERS)
    customers = arrange(first + 3, get(first + 2, "u2", CUSTOMERS), [0], CUSTOMERS)
    return equi_join(
        first + 4, orders, customers, left_key=0, right_key=0, left_arity=3, right_arity=2
    )


def region_totals(gid="u3"):
    """SELECT region, sum(amount), count(*) FROM orders JOIN customers … GROUP BY region, the 2 largest sums."""
    reduce = reduce_sum_count(5, joined_orders(), key=[4], value=1, arity=5)
    columns = (TXT, BIG, BIG)
    plan = top(7, read_back(6, reduce, 1, columns), group=[], order=[(1, True)], limit=2, arity=3)
    return dataflow(gid, plan, columns, {"u1": ORDERS, "u2": CUSTOMERS})


REGION_TOTALS = """
    SELECT region, sum(amount * mz_diff)::BIGINT, sum(mz_diff)::BIGINT FROM (
        SELECT c.c1 AS region, o.c1 AS amount, o.mz_diff * c.mz_diff AS mz_diff
        FROM u1 o JOIN u2 c ON o.c0 IS NOT DISTINCT FROM c.c0)
    GROUP BY region HAVING sum(mz_diff) <> 0
    ORDER BY 2 DESC NULLS FIRST, 1 NULLS LAST, 3 LIMIT 2"""


def recomputed(storage, sql, gids, as_of) -> Counter:
    """A query over the inputs at a time, by DuckDB: rows with counts."""
    connection = duckdb.connect()
    for gid in gids:
        connection.register(gid, storage.contents(gid, as_of))
    try:
        return Counter(connection.sql(sql).fetchall())
    finally:
        connection.close()


def stored(storage, gid, as_of) -> Counter:
    """A view's contents: rows (without mz_error, which must be NULL) with counts."""
    rows: Counter = Counter()
    for row in storage.contents(gid, as_of).to_pylist():
        assert row.pop("mz_error") is None
        diff = row.pop("mz_diff")
        row.pop("mz_time")
        rows[tuple(row.values())] += diff
    return Counter({row: count for row, count in rows.items() if count})


def errors(storage, gid, as_of) -> Counter:
    found: Counter = Counter()
    for row in storage.contents(gid, as_of).to_pylist():
        if row["mz_error"] is not None:
            found[row["mz_error"]] += row["mz_diff"]
    return Counter({row: count for row, count in found.items() if count})


def divide(numerator, denominator):
    return Call("div_bigint", (numerator, denominator), BIGINT)
