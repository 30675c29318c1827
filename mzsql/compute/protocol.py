"""What a controller tells a replica, and a replica tells its controller: all of it, in process too.

Promise: commands and responses are frozen values that encode themselves (`encode`, `decode`), so a replica may be in this process, where
they are handed over as they are, or in another one. A replica takes its commands in the order in which they were sent, knows nothing
of who sends them, and tells nothing except by responses. What it tells of one dataflow comes in the order in which it happened. Names
are Materialize's. A command is never answered where it is sent: what becomes of it, a response tells.

Trade-off: plans travel whole, as the expression cache keeps them; of what was rendered of a plan its outline travels, the rest is made
again where it runs, when it is needed (`compute.replica.dataflow.Renderings` remembers it within a process).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from mzsql.compute.protocols import ComputeSettings
from mzsql.lir.plan import DataflowDescription
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import RefreshSchedule

#: So many commands wait for a replica to take them; who sends more waits, and is told that the replica takes none at its timeout.
MOST_COMMANDS = 4096
#: So many peeks wait on a replica for their time, or run; more are refused.
MOST_PEEKS = 1024

# --- commands ---------------------------------------------------------------------------------


class CreateInstance(msgspec.Struct, frozen=True, tag=True):
    """The first command: which replica this is, and its settings."""

    replica_id: str
    settings: ComputeSettings


class InitializationComplete(msgspec.Struct, frozen=True, tag=True):
    """Every dataflow that is wanted was sent: what the replica has kept of others, from an earlier life, it may give up."""


class UpdateConfiguration(msgspec.Struct, frozen=True, tag=True):
    """What may change while a replica runs; None where it stays.

    Attributes:
        step_engine, node_hydration: as in `ComputeSettings`.
    """

    step_engine: str | None = None
    node_hydration: bool | None = None

    def of(self, settings: ComputeSettings) -> ComputeSettings:
        """The settings as they are from then on."""
        said = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }
        return msgspec.structs.replace(settings, **said)

    @classmethod
    def between(cls, before: ComputeSettings, now: ComputeSettings) -> UpdateConfiguration:
        """What makes one of the other, as far as it may change."""
        named = {one: getattr(now, one) for one in cls.__struct_fields__}
        return cls(**{one: new for one, new in named.items() if new != getattr(before, one)})


class CreateDataflow(msgspec.Struct, frozen=True, tag=True):
    """Maintain a materialized view (its shard has columns c0 …, mz_error) or an index (no shard).

    A new one hydrates at `as_of`, which must be readable in all inputs; one whose shards are there goes on.

    Attributes:
        id: the exported object.
        name: for a person.
        dataflow: the plan, sealed: whoever passes it on need not decode it.
        output_shard: of a materialized view.
        as_of: when it begins.
        outline: what is known of it as rendered, so that it need not be rendered before a step needs it; None: nothing.
        refresh: when a materialized view is refreshed; None: with every change of what it reads.
    """

    id: GlobalId
    name: str
    dataflow: SealedDataflow
    output_shard: str | None
    as_of: Timestamp
    outline: Outline | None = None
    refresh: RefreshSchedule | None = None


class AllowCompaction(msgspec.Struct, frozen=True, tag=True):
    """An index need be readable at `frontier` and later only; until this comes, from its `as_of` on."""

    id: GlobalId
    frontier: Timestamp


class DropDataflow(msgspec.Struct, frozen=True, tag=True):
    """Stop a dataflow and give up the arrangements that nobody else uses.

    Answered by a `Status` of ``dropped`` when nothing is left of it, at once where there is none.
    An index that others still read is maintained, unseen, until the last of them is dropped.
    """

    id: GlobalId


class Peek(msgspec.Struct, frozen=True, tag=True):
    """Read an index at a time, once it is complete there.

    Attributes:
        uuid: names the peek.
        id: the index.
        as_of: the time.
        columns: those wanted, by name; None for all: key, value, mz_error.
    """

    uuid: str
    id: GlobalId
    as_of: Timestamp
    columns: tuple[str, ...] | None = None


class CancelPeek(msgspec.Struct, frozen=True, tag=True):
    """A peek's rows are not wanted any more. It is answered all the same, unless it was."""

    uuid: str


class CreateIntrospection(msgspec.Struct, frozen=True, tag=True):
    """Tell of what a plan over the replica's logs (`compute.logs`) comes to, and from then on of every change (`IntrospectionUpdates`).

    Attributes:
        id: names the subscribe; transient.
        relation: the relation that it feeds, as a person calls it.
        dataflow: the plan.
        seconds: it is looked so often whether there is a change.
    """

    id: GlobalId
    relation: str
    dataflow: DataflowDescription
    seconds: float = 1.0


class CancelIntrospection(msgspec.Struct, frozen=True, tag=True):
    """Tell no more of a subscribe. Idempotent."""

    id: GlobalId


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Answered by `Pong` when all commands before it were taken."""

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
    """How far a dataflow has come.

    Attributes:
        id: the exported object.
        write_frontier: the export's upper as the replica knows it.
    """

    id: GlobalId
    write_frontier: Frontier


class ReadFrontier(msgspec.Struct, frozen=True, tag=True):
    """What a dataflow reads need be readable at `since` and later only, here or after a crash; tells whoever holds it for the replica.

    Attributes:
        id: the exported object.
        since: never earlier than told before in this life of the dataflow; None: it reads nothing any more.
    """

    id: GlobalId
    since: Frontier


class Status(msgspec.Struct, frozen=True, tag=True):
    """How a dataflow stands, whenever that has changed.

    Attributes:
        object_id: the exported object.
        replica_id: the replica.
        state: ``waiting`` (for inputs or its turn), ``hydrating``, ``running``, ``failed`` (tried again with growing pauses),
            ``refused`` (it could not be installed) or ``dropped`` (nothing is left of it).
        frontier: the export's upper as the replica knew it then; `Frontiers` tells how it moves.
        as_of: the time it was, or will be, hydrated at.
        hydrated: whether it is.
        error: the last failure's message while `failed` or `refused`.
        failures: consecutive failures.
        temporal: whether its rows come and go as time passes, without any update.
        reason: while it is not hydrated, or fails: what it does or waits for, for a person.
        plan_node_id: the node that it is at while it hydrates.
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
    """One worker of one LIR node of one object on one replica: a row of
    ``mz_compute_operator_hydration_statuses_per_worker``, in column order.
    """

    object_id: GlobalId
    plan_node_id: int
    replica_id: str
    worker_id: int
    hydrated: bool


class ObjectHydrationStatus(msgspec.Struct, frozen=True, tag="object"):
    """One object on one replica; hydrated once its output's frontier has passed its `as_of`."""

    object_id: GlobalId
    replica_id: str
    hydrated: bool


StatusRow: TypeAlias = OperatorHydrationStatus | ObjectHydrationStatus


class HydrationStatus(msgspec.Struct, frozen=True, tag=True):
    """Rows of hydration statuses with their diffs (+1 or -1), all at one time."""

    updates: tuple[tuple[StatusRow, int], ...]


class RefreshStats(msgspec.Struct, frozen=True):
    """What one step of one object did.

    Attributes:
        object_id: the exported object.
        lower: first time the step covered.
        upper: first time it did not cover.
        rows_in: input updates.
        rows_out: updates of the export.
        bytes_read: bytes read from arrangements and from inputs' deltas (compressed, as stored).
        jobs: Spark jobs it ran (0 for an empty step).
        seconds: wall time.
        kind: ``step``, ``empty`` or ``hydration``.
        engine: ``duckdb`` or ``spark``; empty where none was needed.
        reason: why that one, for a person.
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
    """A step or a hydration was done; comes before the `Frontiers` that it has moved."""

    stats: RefreshStats


class PeekResponse(msgspec.Struct, frozen=True, tag=True):
    """What a peek found: its rows, or an error, or neither where it was canceled.

    Attributes:
        uuid: the peek's.
        rows: the columns asked for, then mz_time and mz_diff.
        error: for a person.
    """

    uuid: str
    rows: pa.Table | None = None
    error: str | None = None


class IntrospectionUpdates(msgspec.Struct, frozen=True, tag=True):
    """A batch of an introspection subscribe: all of its rows at first, then what has changed.

    Attributes:
        id: the subscribe's.
        relation: the relation that it feeds.
        updates: rows with their diffs.
        snapshot: whether these are all rows, whatever was told before.
        error: why it has ended, for a person.
    """

    id: GlobalId
    relation: str
    updates: tuple[tuple[tuple[str | int | bool | None, ...], int], ...] = ()
    snapshot: bool = False
    error: str | None = None


class Parted(msgspec.Struct, frozen=True, tag=True):
    """The way to the replica was lost: what it has told stands until it tells it anew. Told by the link, not by the replica."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    """All commands before the `Ping` of this nonce were taken."""

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

#: Takes a response: records it and returns at once. Called from any thread of a replica.
Respond: TypeAlias = Callable[[Response], None]


class ReplicaLink(Protocol):
    """The way from a controller to one replica; the way back is the `Respond` that it was made with.

    Attributes:
        apart: whether its holds on inputs end with a process that is not this one, so that whoever commands it holds them, too.
    """

    @property
    def apart(self) -> bool:
        """See above."""

    @property
    def offline(self) -> str | None:
        """Why it does not work now, for a person; None where it does."""

    @property
    def gone(self) -> bool:
        """Whether it has been away for so long that what it told is not to be believed any more."""

    def send(self, command: Command) -> None:
        """Hand a command over; waits while `MOST_COMMANDS` wait already.

        Raises:
            ObjectInUse: they waited for longer than the replica's timeout.
            ThreadFailed: the replica has ended by a failure.
        """

    def close(self) -> None:
        """Stop the replica, wait for its threads. Its shards and holds stay. Idempotent."""

    def release(self) -> None:
        """After `close`: let go of what it holds of inputs, which whoever leads goes on to hold as far as it is wanted. Idempotent."""


#: Starts, or finds, the replica that a first command describes.
Connect: TypeAlias = Callable[[CreateInstance, Respond], ReplicaLink]


# --- bytes ------------------------------------------------------------------------------------


def encode(message: Command | Response) -> bytes:
    """A message for another process."""
    return msgspec.msgpack.encode(message, enc_hook=_to_bytes)


def decode_command(data: bytes) -> Command:
    """A command that `encode` made.

    Raises:
        msgspec.DecodeError: it did not, or another version did.
    """
    return _COMMANDS.decode(data)


def decode_response(data: bytes) -> Response:
    """A response that `encode` made; raises as `decode_command`."""
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
