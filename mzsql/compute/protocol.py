"""The protocol between a controller and a replica: every command and every response, whether the replica is in this
process or another.

Promise: commands and responses are frozen values that `encode` and `decode_…` turn into bytes and back. To a replica
in this process they are handed over as they are; to one in another process they travel as bytes. A replica takes
commands in the order in which they were sent, does not know who sends them, and reports only by responses; responses
about one dataflow come in the order in which things happened. `send` returns no result: the outcome of a command is
always a response. The names are those of Materialize's compute protocol.

Trade-off: a plan travels whole, in the form in which the expression cache stores it. Of its rendered form only the
outline travels; the SQL is rendered again where it runs, when it is needed (`compute.replica.dataflows.dataflow.Renderings`
remembers it within a process).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from mzsql.compute.dependencies import ComputeSettings
from mzsql.lir.plan import DataflowDescription
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import RefreshSchedule

#: Most commands that wait for a replica to take them. A sender beyond that blocks, and gets an error at the replica's
#: timeout.
MOST_COMMANDS = 4096
#: Most peeks that wait on a replica for their time, or run; further ones are refused.
MOST_PEEKS = 1024

# --- commands ---------------------------------------------------------------------------------


class CreateInstance(msgspec.Struct, frozen=True, tag=True):
    """The first command to a replica: its id and its settings."""

    replica_id: str
    settings: ComputeSettings


class InitializationComplete(msgspec.Struct, frozen=True, tag=True):
    """Every wanted dataflow has been sent, so the replica may delete arrangements that an earlier run left and none of
    them uses.
    """


class UpdateConfiguration(msgspec.Struct, frozen=True, tag=True):
    """Change settings of a running replica. None leaves a setting unchanged.

    Attributes:
        step_engine, node_hydration: as in `ComputeSettings`.
    """

    step_engine: str | None = None
    node_hydration: bool | None = None

    def of(self, settings: ComputeSettings) -> ComputeSettings:
        """Return `settings` with these changes applied."""
        said = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }
        return msgspec.structs.replace(settings, **said)

    @classmethod
    def between(cls, before: ComputeSettings, now: ComputeSettings) -> UpdateConfiguration:
        """The command that turns the settings `before` into `now`, as far as a running replica's settings may change."""
        named = {one: getattr(now, one) for one in cls.__struct_fields__}
        return cls(**{one: new for one, new in named.items() if new != getattr(before, one)})


class CreateDataflow(msgspec.Struct, frozen=True, tag=True):
    """Maintain a materialized view (whose shard has columns c0 …, mz_error) or an index (which has no output shard).

    A new dataflow hydrates at `as_of`, which must be readable in all inputs. One whose shards exist resumes from
    them.

    Attributes:
        id: the exported object.
        name: the object's name, for messages.
        dataflow: the plan, kept encoded so that whoever forwards it need not decode it.
        output_shard: the shard of a materialized view; None for an index.
        as_of: the time at which the dataflow begins.
        outline: what is known of the rendered plan, so that it is rendered only when a step needs it; None if
            nothing is known.
        refresh: the refresh schedule of a materialized view; None to refresh with every change of its inputs.
    """

    id: GlobalId
    name: str
    dataflow: SealedDataflow
    output_shard: str | None
    as_of: Timestamp
    outline: Outline | None = None
    refresh: RefreshSchedule | None = None


class AllowCompaction(msgspec.Struct, frozen=True, tag=True):
    """From now on an index need be readable only at `frontier` and later. Before the first such command it is kept
    readable from its `as_of`.
    """

    id: GlobalId
    frontier: Timestamp


class DropDataflow(msgspec.Struct, frozen=True, tag=True):
    """Stop a dataflow and delete the arrangements that no other dataflow uses.

    Answered by a `Status` of ``dropped`` when nothing of it is left, at once if the dataflow does not exist. An
    index that other dataflows still read is maintained until the last of them is dropped; its hydration is no longer
    reported meanwhile.
    """

    id: GlobalId


class Peek(msgspec.Struct, frozen=True, tag=True):
    """Read an index at one time, once the index is complete at that time.

    Attributes:
        uuid: identifies the peek in its response and in `CancelPeek`.
        id: the index.
        as_of: the time to read at.
        columns: names of the wanted columns; None for all: key, value, mz_error.
    """

    uuid: str
    id: GlobalId
    as_of: Timestamp
    columns: tuple[str, ...] | None = None


class CancelPeek(msgspec.Struct, frozen=True, tag=True):
    """The rows of a peek are not wanted any more. The peek is answered all the same, unless it already was."""

    uuid: str


class CreateIntrospection(msgspec.Struct, frozen=True, tag=True):
    """Subscribe to a plan over the replica's introspection logs (`compute.logs`): its contents, then every change
    (`IntrospectionUpdates`).

    Attributes:
        id: identifies the subscribe; a transient id.
        relation: name of the builtin relation that it feeds.
        dataflow: the plan.
        seconds: how often the replica checks for changes.
    """

    id: GlobalId
    relation: str
    dataflow: DataflowDescription
    seconds: float = 1.0


class CancelIntrospection(msgspec.Struct, frozen=True, tag=True):
    """End an introspection subscribe. Idempotent."""

    id: GlobalId


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Answered by a `Pong` with the same nonce when all earlier commands have been taken."""

    nonce: int


Command: TypeAlias = (
    CreateInstance
    | InitializationComplete
    | UpdateConfiguration
    | CreateDataflow
    | AllowCompaction
    | DropDataflow
    | Peek
    | CancelPeek
    | CreateIntrospection
    | CancelIntrospection
    | Ping
)

# --- responses --------------------------------------------------------------------------------


class Frontiers(msgspec.Struct, frozen=True, tag=True):
    """How far the output of a dataflow has advanced.

    Attributes:
        id: the exported object.
        write_frontier: the output's upper as the replica knows it.
    """

    id: GlobalId
    write_frontier: Frontier


class ReadFrontier(msgspec.Struct, frozen=True, tag=True):
    """A dataflow reads its inputs only at `since` and later from now on, even after a crash, so its holder may release
    earlier times.

    Attributes:
        id: the exported object.
        since: never goes back while the dataflow is installed; None when it reads nothing any more.
    """

    id: GlobalId
    since: Frontier


class Status(msgspec.Struct, frozen=True, tag=True):
    """The state of a dataflow, sent whenever it has changed.

    Attributes:
        object_id: the exported object.
        replica_id: the replica.
        state: ``waiting`` (to be opened), ``hydrating`` (or waiting for its inputs or its turn), ``running``,
            ``failed`` (is retried, after growing pauses), ``refused`` (could not be installed) or ``dropped``
            (nothing of it is left).
        frontier: the output's upper as the replica knew it then; later progress is reported by `Frontiers`.
        as_of: the time at which it was or will be hydrated.
        hydrated: whether it is hydrated.
        error: message of the last failure, while `failed` or `refused`.
        failures: number of consecutive failures.
        temporal: whether rows appear and disappear as time passes, without updates of the inputs (a filter on
            ``mz_now()``).
        reason: while it is not hydrated or fails: what it does or waits for, as text for a person.
        plan_node_id: the LIR node that it is at while it hydrates.
    """

    object_id: GlobalId
    replica_id: str
    state: str
    frontier: Frontier
    as_of: Timestamp
    hydrated: bool
    error: str | None = None
    failures: int = 0
    temporal: bool = False
    reason: str = ""
    plan_node_id: int | None = None


class OperatorHydrationStatus(msgspec.Struct, frozen=True, tag="operator"):
    """Hydration of one worker of one LIR node of one object on one replica: a row of
    ``mz_compute_operator_hydration_statuses_per_worker``, fields in column order.
    """

    object_id: GlobalId
    plan_node_id: int
    replica_id: str
    worker_id: int
    hydrated: bool


class ObjectHydrationStatus(msgspec.Struct, frozen=True, tag="object"):
    """Hydration of one object on one replica: it is hydrated once its output's frontier is beyond its `as_of`."""

    object_id: GlobalId
    replica_id: str
    hydrated: bool


StatusRow: TypeAlias = OperatorHydrationStatus | ObjectHydrationStatus


class HydrationStatus(msgspec.Struct, frozen=True, tag=True):
    """Changes of hydration statuses: rows with diffs (+1 or -1), all to be applied at one time."""

    updates: tuple[tuple[StatusRow, int], ...]


class RefreshStats(msgspec.Struct, frozen=True):
    """Statistics of one step, or of a hydration, of one object.

    Attributes:
        object_id: the exported object.
        lower: first time that the step covered.
        upper: first time that it did not cover.
        rows_in: number of input updates.
        rows_out: number of updates of the output.
        bytes_read: stored (compressed) bytes read from arrangements and from the inputs' deltas.
        jobs: Spark jobs (0 for a step in DuckDB or without work).
        seconds: wall time.
        kind: ``step``, ``empty`` (no update mattered) or ``hydration``.
        engine: ``duckdb`` or ``spark``; empty if no engine was needed.
        reason: why that engine was chosen, as text for a person.
    """

    object_id: GlobalId
    lower: Timestamp
    upper: Timestamp
    rows_in: int
    rows_out: int
    bytes_read: int
    jobs: int
    seconds: float
    kind: str = "step"
    engine: str = ""
    reason: str = ""


class Refreshed(msgspec.Struct, frozen=True, tag=True):
    """A step or a hydration is done. Sent before the `Frontiers` that it moved."""

    stats: RefreshStats


class PeekResponse(msgspec.Struct, frozen=True, tag=True):
    """The result of a peek: rows, or an error, or neither if it was canceled.

    Attributes:
        uuid: the peek's.
        rows: the columns asked for, then mz_time and mz_diff.
        error: message for a person.
    """

    uuid: str
    rows: pa.Table | None = None
    error: str | None = None


class IntrospectionUpdates(msgspec.Struct, frozen=True, tag=True):
    """A batch of an introspection subscribe: first all its rows, then changes.

    Attributes:
        id: the subscribe's.
        relation: name of the builtin relation that it feeds.
        updates: rows with their diffs.
        snapshot: whether `updates` are all rows and replace what was reported before.
        error: why the subscribe has ended, as a message for a person; None while it goes on.
    """

    id: GlobalId
    relation: str
    updates: tuple[tuple[tuple[str | int | bool | None, ...], int], ...] = ()
    snapshot: bool = False
    error: str | None = None


class Parted(msgspec.Struct, frozen=True, tag=True):
    """The connection to the replica was lost; what it reported stays valid until it reports anew. Sent by the link, not
    by the replica.
    """


class Pong(msgspec.Struct, frozen=True, tag=True):
    """All commands before the `Ping` with this nonce have been taken."""

    nonce: int


Response: TypeAlias = (
    Frontiers
    | ReadFrontier
    | Status
    | HydrationStatus
    | Refreshed
    | PeekResponse
    | IntrospectionUpdates
    | Parted
    | Pong
)

#: Takes one response: records it and returns at once. Called from any thread of a replica.
Respond: TypeAlias = Callable[[Response], None]


class ReplicaLink(Protocol):
    """The connection from a controller to one replica. Responses come back through the `Respond` it was made with.

    Attributes:
        apart: whether the replica's holds on inputs belong to another process and end with it; the controller then
            keeps holds too.
    """

    @property
    def apart(self) -> bool:
        """See the class."""

    @property
    def offline(self) -> str | None:
        """Why the replica cannot be used now, as a message for a person; None while it can."""

    @property
    def gone(self) -> bool:
        """Whether the replica has been unreachable for so long that its last reports should be taken for outdated."""

    def send(self, command: Command) -> None:
        """Hand over a command. Blocks while `MOST_COMMANDS` wait already.

        Raises:
            ObjectInUse: they waited for longer than the replica's timeout.
            ThreadFailed: a thread that the replica needs has failed.
        """

    def close(self) -> None:
        """Stop the replica and join its threads. Its shards and its holds on inputs stay. Idempotent."""

    def release(self) -> None:
        """Release the replica's holds on inputs, after `close`. The leading process keeps its own holds for as long as
        they are needed. Idempotent.
        """


#: Starts or finds the replica that a `CreateInstance` describes.
Connect: TypeAlias = Callable[[CreateInstance, Respond], ReplicaLink]


# --- bytes ------------------------------------------------------------------------------------


def encode(message: Command | Response) -> bytes:
    """Encode a message as msgpack, for another process."""
    return msgspec.msgpack.encode(message, enc_hook=_to_bytes)


def decode_command(data: bytes) -> Command:
    """Decode a command that `encode` made.

    Raises:
        msgspec.DecodeError: the bytes are no command, or one of an incompatible version.
    """
    return _COMMANDS.decode(data)


def decode_response(data: bytes) -> Response:
    """Decode a response that `encode` made.

    Raises:
        msgspec.DecodeError: the bytes are no response, or one of an incompatible version.
    """
    return _RESPONSES.decode(data)


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, pa.Table):
        raise NotImplementedError(f"{type(value).__name__} does not travel")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write_table(value)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _from_bytes(typ: type, value: Any) -> Any:
    if typ is not pa.Table:
        raise NotImplementedError(f"{typ.__name__} does not travel")
    with pa.ipc.open_stream(value) as stream:
        return stream.read_all()


_COMMANDS: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_RESPONSES: msgspec.msgpack.Decoder[Response] = msgspec.msgpack.Decoder(
    Response, dec_hook=_from_bytes
)
