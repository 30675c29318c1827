"""What a replica reports of the hydration of one dataflow, for each node and worker.

Promise: every change is one response, in the order in which it happened; a row is retracted as it was reported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from mzsql.compute.protocol import (
    HydrationStatus,
    ObjectHydrationStatus,
    OperatorHydrationStatus,
    Respond,
    StatusRow,
)
from mzsql.repr.ids import GlobalId

#: Rows (None where only the end tells) and bytes, by worker; None for rows of no worker, as those of a view.
PutOut: TypeAlias = Mapping[int | None, tuple[int | None, int]]


class HydrationReport:
    """The hydration statuses of one object on one replica. Every change is sent as a response, in order. Thread-safe.

    The last worker of the last node is reported together with the object, so that an object that is not hydrated always shows where.
    """

    def __init__(
        self,
        gid: GlobalId,
        lir_ids: Sequence[int],
        replica_id: str,
        workers: int,
        respond: Respond,
        *,
        nodes: bool = True,
    ) -> None:
        self._gid = gid
        self._replica = replica_id
        self._respond = respond
        self._lock = threading.Lock()
        self._nodes = {(lir_id, worker): False for lir_id in lir_ids for worker in range(workers)}
        self._left = len(self._nodes)
        self._workers = workers
        self._object = False
        self._shown = False
        self._tells_nodes = nodes
        #: what each worker of a node has put out until now, while the object is not hydrated
        self._put_out: dict[int, PutOut] = {}

    @property
    def tells_nodes(self) -> bool:
        """Whether nodes are reported."""
        return self._tells_nodes

    def tell_nodes(self, wanted: bool) -> None:
        """Switch reports of nodes on (their present statuses are reported) or off (they are retracted)."""
        with self._lock:
            if wanted == self._tells_nodes:
                return
            rows = [self._row(lir_id, worker) for lir_id, worker in self._nodes]
            self._tells_nodes = True
            if self._shown:
                self._tell([(row, 1 if wanted else -1) for row in rows])
            self._tells_nodes = wanted

    def show(self) -> None:
        """Report the present statuses, if that was not done yet; later changes are reported from then on."""
        with self._lock:
            if not self._shown:
                self._shown = True
                self._tell([(row, 1) for row in self._rows()])

    def node_done(self, lir_ids: Iterable[int], workers: Iterable[int] | None = None) -> None:
        """Record that workers (all by default) have done their shares of nodes."""
        which = range(self._workers) if workers is None else tuple(workers)
        changes: list[tuple[StatusRow, int]] = []
        with self._lock:
            for lir_id in lir_ids:
                for worker in which:
                    if self._left > 1 and self._nodes.get((lir_id, worker)) is False:
                        changes += self._turned(lir_id, worker, True)
            if changes and self._shown:
                self._tell(changes)

    def node_puts_out(self, lir_id: int, put_out: PutOut) -> None:
        """Record what the workers of a node have put out until now, in place of what was known of that node."""
        with self._lock:
            if self._tells_nodes and not self._object:
                self._put_out[lir_id] = dict(put_out)

    def put_out(self) -> dict[int, PutOut]:
        """What the workers of each node have put out in the hydration that is under way."""
        with self._lock:
            return dict(self._put_out)

    def _turned(self, lir_id: int, worker: int, done: bool) -> list[tuple[StatusRow, int]]:
        """Set a worker of a node hydrated or not, and return the change of its row. The caller holds the lock."""
        before = self._row(lir_id, worker)
        self._nodes[lir_id, worker] = done
        self._left += -1 if done else 1
        return [(before, -1), (self._row(lir_id, worker), 1)]

    def node_undone(self, lir_ids: Iterable[int]) -> None:
        """Set all workers of the nodes not hydrated: what they had written was not kept."""
        undone = frozenset(lir_ids)
        changes: list[tuple[StatusRow, int]] = []
        with self._lock:
            self._put_out.clear()
            for (lir_id, worker), done in self._nodes.items():
                if done and lir_id in undone:
                    changes += self._turned(lir_id, worker, False)
            if changes and self._shown:
                self._tell(changes)

    def object_done(self) -> None:
        """Set the object and all its nodes hydrated: the output's frontier is beyond as_of."""
        changes: list[tuple[StatusRow, int]] = []
        with self._lock:
            self._put_out.clear()
            if self._object:
                return
            for (lir_id, worker), done in self._nodes.items():
                if not done:
                    changes += self._turned(lir_id, worker, True)
            changes.append((ObjectHydrationStatus(self._gid, self._replica, False), -1))
            changes.append((ObjectHydrationStatus(self._gid, self._replica, True), 1))
            self._object = True
            if self._shown:
                self._tell(changes)

    def object_undone(self) -> None:
        """Set the object and all its nodes not hydrated, because it is opened again."""
        changes: list[tuple[StatusRow, int]] = []
        with self._lock:
            for (lir_id, worker), done in self._nodes.items():
                if done:
                    changes += self._turned(lir_id, worker, False)
            if self._object:
                changes.append((ObjectHydrationStatus(self._gid, self._replica, True), -1))
                changes.append((ObjectHydrationStatus(self._gid, self._replica, False), 1))
            self._object = False
            if self._shown and changes:
                self._tell(changes)

    def retract(self) -> None:
        """Retract every reported row, because the object was dropped."""
        with self._lock:
            if self._shown:
                self._shown = False
                self._tell([(row, -1) for row in self._rows()])

    @property
    def hydrated(self) -> bool:
        """Whether the object is hydrated."""
        return self._object

    def _tell(self, updates: Sequence[tuple[StatusRow, int]]) -> None:
        told = (
            one for one in updates if self._tells_nodes or isinstance(one[0], ObjectHydrationStatus)
        )
        if found := tuple(told):
            self._respond(HydrationStatus(found))

    def _row(self, lir_id: int, worker: int) -> OperatorHydrationStatus:
        done = self._nodes[lir_id, worker]
        return OperatorHydrationStatus(self._gid, lir_id, self._replica, worker, done)

    def _rows(self) -> list[StatusRow]:
        rows: list[StatusRow] = [self._row(lir_id, worker) for lir_id, worker in self._nodes]
        return [*rows, ObjectHydrationStatus(self._gid, self._replica, self._object)]
