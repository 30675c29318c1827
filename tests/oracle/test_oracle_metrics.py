"""What the metrics say, read from the registry."""

from __future__ import annotations

import pytest
from postgres_server import PostgresServer
from prometheus_client import CollectorRegistry

from mzsql.location import Determinate, UsageError, open_oracle
from mzsql.location.mem import MemConsensus, MemOracle
from mzsql.oracle import InMemoryOracle, Ledger, MeteredOracle, OracleMetrics, Serving, wrap_oracle


class _Registry:
    def __init__(self):
        self.registry = CollectorRegistry()
        self.metrics = OracleMetrics(self.registry)

    def __call__(self, name, op=None):
        labels = {"timeline": "t"} if op is None else {"timeline": "t", "op": op}
        return self.registry.get_sample_value(f"mz_ts_oracle_{name}", labels)


def test_operations_are_counted_and_timed():
    value = _Registry()
    oracle = wrap_oracle(MemOracle(lambda: 5), "t", metrics=value.metrics)
    oracle.apply_write(oracle.write_ts())
    assert oracle.read_ts() == 5
    with pytest.raises(UsageError):
        oracle.apply_write(-1)
    assert value("started_total", "apply_write") == 2
    assert value("succeeded_total", "apply_write") == 1
    assert value("failed_total", "apply_write") == 1
    assert value("seconds_count", "apply_write") == 2
    assert value("queries_succeeded_total", "apply_write") == 1
    assert value("queries_failed_total", "apply_write") == 1
    assert value("started_total", "peek_write_ts") == 0
    assert value("seconds_count", "read_ts") == 1
    assert value("batches_count_total") == 1
    assert value("batched_op_count_total") == 1
    assert value("batch_size_sum") == 1


def test_queries_of_a_server_that_is_away_are_counted_one_by_one():
    value = _Registry()
    with PostgresServer() as server:
        oracle = MeteredOracle(
            open_oracle(server.url(timeout=2), "t", lambda: 5), "t", value.metrics
        )
        assert oracle.write_ts() == 5
        server.stop(immediate=True)
        with pytest.raises(Determinate):
            oracle.read_ts()
        oracle.close()
    assert value("queries_succeeded_total", "write_ts") == 1
    assert value("retries_total", "write_ts") == 0
    assert value("failed_total", "read_ts") == 1
    failed, retries = value("queries_failed_total", "read_ts"), value("retries_total", "read_ts")
    assert failed > 1
    assert retries == failed - 1
    assert value("queries_succeeded_total", "read_ts") == 0


def test_what_serves_from_memory_counts_its_looks_and_ranges():
    value = _Registry()
    ledger = Ledger(MemConsensus(), "t", value.metrics)
    oracle = InMemoryOracle("e/t", ledger, lambda: 5, "here", serving=Serving())
    for _ in range(10):
        oracle.apply_write(oracle.write_ts())
        oracle.confirm_leadership()
    assert value("started_total", "confirm_leadership") == 10
    assert value("started_total", "reserve") == 2  # the take-over, and one range
    oracle.close()
    assert value("started_total", "reserve") == 3
