"""What the tests of threads share: a process's view of an environment, faults that are planted in threads, stand-ins for nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from prometheus_client import REGISTRY

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.location import consensus_around

HANG = 60.0


class Fault:
    """Raises in the threads that it is planted in, whatever they ask of the store."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.error: BaseException = RuntimeError("planted")
        self.after = False

    def around(self, _: str, act: Callable[[], Any]) -> Any:
        planted = self.name is not None and threading.current_thread().name.startswith(self.name)
        if planted and not self.after:
            raise self.error
        found = act()
        if planted:
            raise self.error
        return found


class Place:
    """A process's view of an environment, and a second process's."""

    def __init__(self, path: Path) -> None:
        self.fault = Fault()
        self.env = Environment.open(locate(str(path)))
        context = self.env.catalog._map._writer.context
        wrapped = consensus_around(context.consensus, self.fault.around)
        msgspec.structs.force_setattr(context, "consensus", wrapped)
        self.coordinator = Coordinator(self.env, spark=lambda: pytest.fail("Spark is not needed"))
        self.other = mzsql.connect(path)
        self.run("CREATE TABLE t (a int)")

    def run(self, text: str) -> list[tuple[Any, ...]]:
        rows = self.coordinator.execute(Session(), text)[-1].rows
        if rows is None:
            return []
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def shown(self, name: str) -> list[tuple[Any, ...]]:
        return self.run(
            f"SELECT status, error, restarts FROM mz_internal.mz_threads WHERE name = '{name}'"
        )

    def wait(self, name: str, status: str) -> None:
        assert self.env.supervisor.wait_for(
            lambda all_: any((one.name, one.status) == (name, status) for one in all_), HANG
        ), self.env.supervisor.statuses()

    def close(self) -> None:
        self.fault.name = None
        self.other.close()
        self.coordinator.close()
        self.env.close()


def restarts_of(name: str) -> float:
    return REGISTRY.get_sample_value("mzsql_thread_restarts_total", {"thread": name}) or 0.0


def append(writer: Any, rows: int) -> None:
    for _ in range(rows):
        at = writer.upper
        table = pa.table(
            {
                "c0": ["a"],
                "mz_time": pa.array([at], pa.int64()),
                "mz_diff": pa.array([1], pa.int64()),
            }
        )
        writer.compare_and_append(table, expected_upper=at, new_upper=at + 1)


class Nothing:
    """No arrangement, and nobody who asks for statuses."""

    def update(self, rows: object) -> None: ...
    def delete_replica(self, replica_id: str) -> None: ...
    def connected(self, replica_id: str) -> None: ...
    def stands(self, status: object) -> None: ...
    def refreshed(self, replica_id: str, stats: object) -> None: ...
    def introspected(self, *args: object, anew: bool) -> None: ...
    def keep(self, dataflows: object) -> None: ...
    def seen_upper(self, _: object) -> int:
        return 0

    def awaited(self) -> list[str]:
        return []

    def watch(self, _: Callable[[], None]) -> Callable[[], None]:
        return lambda: None
