"""A second process that plans, for an opening with very many objects to optimize: Python runs one thread at a time, but
machines have more cores.

Promise: it makes the plans that this process would make of the same catalog under the same features, in the requested
order. Nothing waits for it: what it has not made yet, cannot plan, or was asked for under another catalog, this process
plans itself. It only reads and writes its pipes, and ends with the process that started it.

The trade-off: it begins by importing the engine, about a second of one core; see `PAYS`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO

import msgspec

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.expression_cache import ExpressionCache
from mzsql.adapter.planning.planner import Planner
from mzsql.catalog.objects import Maintained, MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.transform import OptimizerFeatures

_log = logging.getLogger(__name__)

#: From so many objects on the process is worth its start.
PAYS = 500

_JOIN_SECONDS = 10.0
#: Seconds that the process is given to exit by itself after its answers could not be read.
_END_SECONDS = 1.0
#: At most so many of the last lines of its standard error are logged when it fails.
_LAST_LINES = 20
#: Bytes of a message's length prefix (big-endian).
_LENGTH = 4


class _Request(msgspec.Struct, frozen=True):
    """What to plan: objects in order, with the catalog and the features."""

    state: CatalogState
    features: OptimizerFeatures
    wanted: tuple[GlobalId, ...]


class _Made(msgspec.Struct, frozen=True, array_like=True):
    """An object's plan as an entry of the expression cache; None where it could not be made."""

    id: GlobalId
    plan: bytes | None


class PlanningProcess:
    """A process that plans part of what this process is about to plan. Thread-safe.

    Args:
        state: the catalog to plan under.
        features: the optimizer's switches to plan under.
        wanted: the objects, in the order in which to plan them.
    """

    def __init__(
        self, state: CatalogState, features: OptimizerFeatures, wanted: Sequence[GlobalId]
    ) -> None:
        self._state, self._features = state, features
        self._lock = threading.Lock()
        self._made: dict[GlobalId, GlobalExpressions] = {}
        # Plans do not depend on the lease or the arrangements, so these are not sent.
        bare = msgspec.structs.replace(state, meta=None, arrangements={}, lease=None, standbys={})
        self._request = msgspec.msgpack.encode(_Request(bare, features, tuple(wanted)))
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name="mzsql-planning-process", daemon=True
        )
        self._thread.start()

    def fits(self, state: CatalogState, features: OptimizerFeatures) -> bool:
        """Whether its plans are valid under this catalog and these switches."""
        return state.items is self._state.items and features == self._features

    def take(self, gid: GlobalId) -> GlobalExpressions | None:
        """Remove and return an object's plan, with outline; None where it is not made yet."""
        with self._lock:
            return self._made.pop(gid, None)

    def close(self) -> None:
        """Kill the process. Idempotent."""
        with self._lock:
            self._ended = True
            process = self._process
        if process is not None:
            process.kill()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        said = deque[bytes](maxlen=_LAST_LINES)
        try:
            with self._started() as process:
                # Standard error is read while the process works: writing to a full pipe would block it.
                hearing = threading.Thread(
                    target=said.extend,
                    args=(process.stderr,),
                    name="mzsql-planning-said",
                    daemon=True,
                )
                hearing.start()
                try:
                    self._ask(process)
                except BaseException:
                    # Give a process that crashed time to exit, so that its own exit code is logged and not the kill's.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_END_SECONDS)
                    process.kill()
                    raise
                finally:
                    hearing.join()
        except (OSError, ValueError, msgspec.MsgspecError) as failure:
            _log.info("the process that plans beside this one: %s", failure)
        finally:
            self._look_at_end(said)

    def _ask(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None:
            return
        _send(process.stdin, self._request)
        process.stdin.close()
        for data in _received(process.stdout):
            made = _MADE.decode(data)
            if made.plan is not None:
                with self._lock:
                    self._made[made.id] = GlobalExpressions.read(made.plan)

    def _look_at_end(self, said: Iterable[bytes]) -> None:
        """Log the exit code where the process failed."""
        code = None if self._process is None else self._process.returncode
        if self._ended or code in (None, 0, -signal.SIGINT):
            return
        _log.warning(
            "the process that plans beside this one has ended with exit code %s; this one plans what it has not. It said last:\n%s",
            code,
            b"".join(said).decode(errors="replace").rstrip() or "(nothing)",
        )

    def _started(self) -> subprocess.Popen[bytes]:
        # It gets this process's module path, however that was changed, so that it imports the same code.
        program = (
            f"import sys; sys.path[:] = {json.dumps(sys.path)}; from {__name__} import main; main()"
        )
        with self._lock:
            if self._ended:
                raise OSError("it was ended before it began")
            self._process = subprocess.Popen(  # noqa: S603  this interpreter, a program of ours
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            return self._process


class PlansAhead:
    """Runs a planning process where that pays. Not thread-safe, but for `close`.

    Args:
        lacking: which of some objects have no plan in the expression cache.
        features: gives the optimizer's switches in force.
    """

    def __init__(
        self,
        lacking: Callable[[Iterable[GlobalId]], Sequence[GlobalId]],
        features: Callable[[], OptimizerFeatures],
    ) -> None:
        self._lacking = lacking
        self._features = features
        self._process: PlanningProcess | None = None
        self._looked: object = None

    def look(self, state: CatalogState, missing: Mapping[GlobalId, object]) -> None:
        """Start planning the missing objects from their end, while this process plans from the beginning; plans for an
        older catalog are dropped.
        """
        features = self._features()
        if self._process is not None and not self._process.fits(state, features):
            self.close()
        if (
            self._looked is state.items
            or len(missing) < PAYS
            or features.enable_cardinality_estimates
        ):
            return
        self._looked = state.items
        wanted = self._lacking(missing)
        if len(wanted) >= PAYS:
            self._process = PlanningProcess(state, features, [*reversed(wanted)])

    def take(self, gid: GlobalId) -> GlobalExpressions | None:
        """As `PlanningProcess.take`."""
        return None if self._process is None else self._process.take(gid)

    def close(self) -> None:
        """Stop planning ahead. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


# --- the process itself ------------------------------------------------------------------------


class CatalogKinds:
    """Which collections have errors, from a catalog alone: the process opens no environment."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state

    def has_errors(self, gid: GlobalId) -> bool:
        """Whether the collection's shard has the column ``mz_error``.

        Raises:
            UndefinedTable: the catalog has no such object.
        """
        item = self._state.items.get(gid)
        if item is None:
            raise UndefinedTable(f"unknown catalog item '{gid}'")
        return isinstance(item, MaterializedView)


def planned(request: bytes) -> Iterator[bytes]:
    """The answers to a request, one message for each object."""
    asked = _REQUESTS.decode(request)
    state = asked.state
    renderings = Renderings(CatalogKinds(state))
    planner = Planner(
        lambda: state, ExpressionCache.in_memory(), lambda: asked.features, renderings
    )
    try:
        for gid in asked.wanted:
            item, plan = state.items.get(gid), None
            if isinstance(item, Maintained):
                try:
                    plan = planner.outlined(planner.deploy(item, fresh=True)).to_bytes()
                except Exception as failure:
                    # The process that asked meets the same error when it plans the object, and reports it.
                    _log.info("%s cannot be planned: %s", gid, failure)
            yield msgspec.msgpack.encode(_Made(gid, plan))
    finally:
        planner.close()


def main() -> None:
    """Answer the one request on standard input, on standard output."""
    out = sys.stdout.buffer
    for request in _received(sys.stdin.buffer):
        try:
            for answer in planned(request):
                _send(out, answer)
        except BrokenPipeError:
            return


_REQUESTS = msgspec.msgpack.Decoder(_Request)
_MADE = msgspec.msgpack.Decoder(_Made)


def _send(to: IO[bytes], data: bytes) -> None:
    to.write(len(data).to_bytes(_LENGTH, "big") + data)
    to.flush()


def _received(source: IO[bytes]) -> Iterator[bytes]:
    """The messages until the other end closes; an incomplete last one is dropped."""
    while len(head := source.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(head, "big")
        data = source.read(size)
        if len(data) < size:
            return
        yield data
