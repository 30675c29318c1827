"""EXPLAIN ANALYZE as a query over the system catalog: the nodes of the running plan, indented as in EXPLAIN, with their
figures.

Promise: it reads only relations that any session can read, so the query that ``AS SQL`` prints gives the same rows.
Where a cluster has several replicas, it shows the one that ``cluster_replica`` names, else the one that serves the
cluster's indexes. A figure is NULL where a node has none: it keeps no state, or had no statement of its own.

EXPLAIN ANALYZE CLUSTER has a row for each index and materialized view of a cluster, those that take the most first; with
skew one for each of its workers, beside the ratio of the node that is spread worst.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.repr.ids import GlobalId

#: The columns for each property, per node; and below, per worker of a node.
_FIGURES: dict[str, tuple[str, ...]] = {
    "cpu": ("e.total_elapsed",),
    "memory": ("pg_size_pretty(s.size) AS total_memory", "s.records AS total_records"),
    "hydration": ("h.hydrated", "h.workers_hydrated", "h.workers"),
}
_SKEWED: dict[str, tuple[str, ...]] = {
    "cpu": (
        "CASE WHEN e.total_elapsed IS NOT NULL THEN 1::numeric END AS elapsed_ratio",
        "e.total_elapsed / w.workers AS worker_elapsed",
        "e.total_elapsed / w.workers AS avg_elapsed",
        "e.total_elapsed",
    ),
    "memory": (
        "round(p.size / nullif(s.size::numeric / w.workers, 0), 2) AS memory_ratio",
        "pg_size_pretty(p.size) AS worker_memory",
        "pg_size_pretty(s.size / w.workers) AS avg_memory",
        "pg_size_pretty(s.size) AS total_memory",
        "round(p.records / nullif(s.records::numeric / w.workers, 0), 2) AS records_ratio",
        "p.records AS worker_records",
        "round(s.records::numeric / w.workers, 2) AS avg_records",
        "s.records AS total_records",
    ),
    "hydration": ("p_h.hydrated AS worker_hydrated", "h.hydrated"),
}

_ELAPSED = """LEFT JOIN (
    SELECT replica_id, lir_id, (elapsed_ns::double precision / 1000000000) * INTERVAL '1 second' AS total_elapsed
    FROM mz_internal.mz_compute_elapsed_unified
    WHERE export_id = '{gid}'
) AS e ON e.replica_id = l.replica_id AND e.lir_id = l.lir_id"""
_SIZES = """LEFT JOIN (
    SELECT replica_id, lir_id, sum(size)::bigint AS size, sum(records)::bigint AS records
    FROM mz_internal.mz_arrangement_sizes_unified
    WHERE export_id = '{gid}'
    GROUP BY replica_id, lir_id
) AS s ON s.replica_id = l.replica_id AND s.lir_id = l.lir_id"""
_HYDRATED = """LEFT JOIN (
    SELECT
        replica_id,
        plan_node_id,
        bool_and(hydrated) AS hydrated,
        count(*) FILTER (WHERE hydrated) AS workers_hydrated,
        count(*) AS workers
    FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
    WHERE object_id = '{gid}'
    GROUP BY replica_id, plan_node_id
) AS h ON h.replica_id = l.replica_id AND h.plan_node_id = l.lir_id"""
_WORKERS = """JOIN (
    SELECT replica_id, worker_id, count(*) OVER (PARTITION BY replica_id) AS workers
    FROM mz_internal.mz_compute_workers_unified
) AS w ON w.replica_id = l.replica_id"""
_SIZES_BY_WORKER = """LEFT JOIN (
    SELECT replica_id, lir_id, worker_id, sum(size)::bigint AS size, sum(records)::bigint AS records
    FROM mz_internal.mz_arrangement_sizes_unified
    WHERE export_id = '{gid}'
    GROUP BY replica_id, lir_id, worker_id
) AS p ON p.replica_id = l.replica_id AND p.lir_id = l.lir_id AND p.worker_id = w.worker_id"""
_HYDRATED_BY_WORKER = """LEFT JOIN mz_internal.mz_compute_operator_hydration_statuses_per_worker AS p_h
    ON p_h.object_id = '{gid}'
    AND p_h.replica_id = l.replica_id
    AND p_h.plan_node_id = l.lir_id
    AND p_h.worker_id = w.worker_id"""
_JOINS = {"cpu": (_ELAPSED,), "memory": (_SIZES,), "hydration": (_HYDRATED,)}
_BY_WORKER: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "memory": (_SIZES_BY_WORKER,),
    "hydration": (_HYDRATED_BY_WORKER,),
}
_REPLICA = """WHERE l.global_id = '{gid}'
    AND l.replica_id = (
        SELECT r.id
        FROM mz_catalog.mz_cluster_replicas AS r
        JOIN mz_catalog.mz_objects AS o ON o.cluster_id = r.cluster_id
        WHERE o.id = '{gid}'
        ORDER BY r.name = current_setting('cluster_replica') DESC, length(r.id), r.id
        LIMIT 1
    )"""


def analyzed(gid: GlobalId, properties: Sequence[str], *, skew: bool) -> str:
    """The text of the query.

    Args:
        gid: the index or materialized view.
        properties: some of `mzsql.frontend.parse.statements.ANALYZED`.
        skew: whether to show each node's workers.
    """
    columns = ["repeat(' ', l.nesting::int * 2) || l.operator AS operator"]
    joins: list[str] = []
    if skew:
        columns.append("w.worker_id")
        joins.append(_WORKERS)
    for one in properties:
        columns += _SKEWED[one] if skew else _FIGURES[one]
        joins += _JOINS[one]
        joins += _BY_WORKER[one] if skew else ()
    listed = ",\n    ".join(columns)
    order = "l.lir_id DESC, w.worker_id" if skew else "l.lir_id DESC"
    lines = (
        f"SELECT\n    {listed}",
        "FROM mz_internal.mz_compute_lir_mapping_unified AS l",
        *joins,
        _REPLICA,
        f"ORDER BY {order}",
    )
    return "\n".join(lines).replace("{gid}", gid)


#: The columns of EXPLAIN ANALYZE CLUSTER, by property; and below, with skew.
_OF_OBJECT: dict[str, tuple[str, ...]] = {
    "cpu": ("e.total_elapsed",),
    "memory": ("pg_size_pretty(s.size) AS total_memory", "s.records AS total_records"),
}
_OF_OBJECT_SKEWED: dict[str, tuple[str, ...]] = {
    "cpu": (
        "CASE WHEN e.total_elapsed IS NOT NULL THEN 1::numeric END AS max_operator_cpu_ratio",
        *_SKEWED["cpu"][1:],
    ),
    "memory": (
        "p.memory_ratio AS max_operator_memory_ratio",
        *_SKEWED["memory"][1:4],
        "p.records_ratio AS max_operator_records_ratio",
        *_SKEWED["memory"][5:],
    ),
}
#: What tells which objects take the most.
_MOST = {"cpu": "e.total_elapsed", "memory": "s.size"}

_REPLICA_OF_CLUSTER = """FROM (
    SELECT r.id, r.cluster_id
    FROM mz_catalog.mz_cluster_replicas AS r
    JOIN mz_catalog.mz_clusters AS c ON c.id = r.cluster_id
    WHERE c.name = {cluster}
    ORDER BY r.name = current_setting('cluster_replica') DESC, length(r.id), r.id
    LIMIT 1
) AS r
JOIN mz_internal.mz_object_fully_qualified_names AS o ON o.cluster_id = r.cluster_id"""
_WORKERS_OF_REPLICA = """JOIN (
    SELECT replica_id, worker_id, count(*) OVER (PARTITION BY replica_id) AS workers
    FROM mz_internal.mz_compute_workers_unified
) AS w ON w.replica_id = r.id"""
_ELAPSED_OF_OBJECT = """LEFT JOIN (
    SELECT replica_id, export_id, (sum(elapsed_ns)::double precision / 1000000000) * INTERVAL '1 second' AS total_elapsed
    FROM mz_internal.mz_compute_elapsed_unified
    GROUP BY replica_id, export_id
) AS e ON e.replica_id = r.id AND e.export_id = o.id"""
_SIZES_OF_OBJECT = """LEFT JOIN (
    SELECT replica_id, export_id, sum(size)::bigint AS size, sum(records)::bigint AS records
    FROM mz_internal.mz_arrangement_sizes_unified
    GROUP BY replica_id, export_id
) AS s ON s.replica_id = r.id AND s.export_id = o.id"""
_SIZES_OF_OBJECT_BY_WORKER = """LEFT JOIN (
    SELECT
        a.replica_id,
        a.export_id,
        a.worker_id,
        sum(a.size)::bigint AS size,
        sum(a.records)::bigint AS records,
        max(round(a.size / nullif(n.size, 0), 2)) AS memory_ratio,
        max(round(a.records / nullif(n.records, 0), 2)) AS records_ratio
    FROM mz_internal.mz_arrangement_sizes_unified AS a
    JOIN (
        SELECT replica_id, export_id, lir_id, avg(size::numeric) AS size, avg(records::numeric) AS records
        FROM mz_internal.mz_arrangement_sizes_unified
        GROUP BY replica_id, export_id, lir_id
    ) AS n ON n.replica_id = a.replica_id AND n.export_id = a.export_id AND n.lir_id = a.lir_id
    GROUP BY a.replica_id, a.export_id, a.worker_id
) AS p ON p.replica_id = r.id AND p.export_id = o.id AND p.worker_id = w.worker_id"""
_JOINS_OF_OBJECT = {"cpu": (_ELAPSED_OF_OBJECT,), "memory": (_SIZES_OF_OBJECT,)}
_OF_OBJECT_BY_WORKER = {"cpu": (), "memory": (_SIZES_OF_OBJECT_BY_WORKER,)}


def analyzed_cluster(cluster: str, properties: Sequence[str], *, skew: bool) -> str:
    """The text of the query for all objects of a cluster.

    Args:
        cluster: its name.
        properties: some of `mzsql.frontend.parse.statements.ANALYZED_OF_CLUSTERS`; rows are sorted by the first.
        skew: whether to show each object's workers.
    """
    columns = [
        "concat_ws('.', o.database_name, o.schema_name, o.name) AS object",
        "o.id AS global_id",
    ]
    joins = [_REPLICA_OF_CLUSTER]
    if skew:
        columns.append("w.worker_id")
        joins.append(_WORKERS_OF_REPLICA)
    for one in properties:
        columns += _OF_OBJECT_SKEWED[one] if skew else _OF_OBJECT[one]
        joins += _JOINS_OF_OBJECT[one]
        joins += _OF_OBJECT_BY_WORKER[one] if skew else ()
    order = f"{_MOST[properties[0]]} DESC NULLS LAST, o.id"
    listed = ",\n    ".join(columns)
    lines = (
        f"SELECT\n    {listed}",
        *joins,
        "WHERE o.object_type IN ('index', 'materialized-view')",
        f"ORDER BY {order}, w.worker_id" if skew else f"ORDER BY {order}",
    )
    return "\n".join(lines).replace("{cluster}", exp.Literal.string(cluster).sql("postgres"))
