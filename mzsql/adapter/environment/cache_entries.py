"""The entries of the expression cache, and their encoding.

Promise: reading an entry is lazy. `GlobalExpressions.read` decodes the header that says whether the entry applies, in a
few microseconds; `check` compares the rest with its checksum; `plan` and `outline` are decoded once, when first asked
for; `mir`, which only EXPLAIN needs, on each call. An entry is read only by the build that wrote it, so the format
never needs a migration.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.relation import Relation
from mzsql.lir.plan import DataflowDescription, walk
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.ids import GlobalId

LOCAL = "local"
GLOBAL = "global"
RUNNING = "running"
"""The plan an object runs with, kept where the cached plan of its next start is another because an index was created or
dropped.
"""


WAITING = "waiting"
"""The entry of a deployment of this build that waits for promotion."""
STANDING = "standing"
"""The entry that says how far a waiting deployment is with one object."""
ARRANGEMENT = "arrangement"
"""The entry that names the shard of an arrangement filled by a waiting deployment."""
CHARGE = "charge"
"""The entry that says that this build's deployment is in charge."""
OF_DEPLOYMENTS = frozenset({WAITING, STANDING, ARRANGEMENT, CHARGE})
"""Kinds of entries that are not plans. Every version spells them alike, since processes of other builds read them."""


#: Bytes per call of `zlib.crc32`. For longer ones zlib releases the GIL, and acquiring that again while other threads
#: run takes a hundred times as long as the sum.
_PIECE = 4096


class StoredNotice(msgspec.Struct, frozen=True, array_like=True):
    """An optimizer notice on a plan.

    Attributes:
        kind, message, hint: as in `mzsql.explain.Notice`.
        redacted_message, redacted_hint: the same without the definition's literals.
        about: objects that must exist for the notice to make sense.
    """

    kind: str
    message: str
    hint: str
    redacted_message: str
    redacted_hint: str
    about: tuple[GlobalId, ...] = ()


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """The indexes that the optimizer could choose from; with other indexes it might have made another plan.

    Attributes:
        on: the objects whose indexes were considered.
        indexes: the indexes that existed, used by the plan or not.
    """

    on: tuple[GlobalId, ...] = ()
    indexes: tuple[GlobalId, ...] = ()


class _StoredLocal(msgspec.Struct, frozen=True, array_like=True):
    features: str
    version: int
    mir: msgspec.Raw


class _StoredGlobal(msgspec.Struct, frozen=True, array_like=True):
    features: str
    version: int
    index_imports: tuple[GlobalId, ...]
    offered: Offered
    notices: tuple[StoredNotice, ...]
    mir: msgspec.Raw
    plan: SealedDataflow
    outline: msgspec.Raw
    checksum: int

    def summed(self) -> int:
        """The CRC-32 of the fields that are decoded lazily."""
        found = 0
        for part in (self.mir, self.plan.data, self.outline):
            data = memoryview(part)
            for at in range(0, len(data), _PIECE):
                found = zlib.crc32(data[at : at + _PIECE], found)
        return found


class _Arrangement(msgspec.Struct, frozen=True, array_like=True):
    """The leading fields of an `ArrangementSpec`; only the node and the fingerprint are decoded."""

    name: msgspec.Raw
    lir_id: int
    columns: msgspec.Raw
    key_arity: msgspec.Raw
    additive: msgspec.Raw
    fingerprint: str


class _Arrangements(msgspec.Struct, frozen=True, array_like=True):
    """The leading fields of an `Outline`; only nodes and arrangements are decoded."""

    inputs: msgspec.Raw
    lir_ids: tuple[int, ...]
    arrangements: tuple[_Arrangement, ...]


_LOCALS = msgspec.msgpack.Decoder(_StoredLocal)
_GLOBALS = msgspec.msgpack.Decoder(_StoredGlobal)
_RELATIONS: msgspec.msgpack.Decoder[Relation] = msgspec.msgpack.Decoder(Relation)
_DATAFLOWS = msgspec.msgpack.Decoder(MirDataflow)
_ARRANGEMENTS: msgspec.msgpack.Decoder[_Arrangements | None] = msgspec.msgpack.Decoder(
    _Arrangements | None
)
_OUTLINES: msgspec.msgpack.Decoder[Outline | None] = msgspec.msgpack.Decoder(Outline | None)


_NOTHING = msgspec.msgpack.encode(None)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _with_checksum(stored: _StoredGlobal) -> _StoredGlobal:
    return msgspec.structs.replace(stored, checksum=stored.summed())


class LocalExpression:
    """A view's locally optimized MIR.

    Attributes:
        features: the optimizer features it was made with, as `spell_features` writes them.
        version: the version of the view's definition.
    """

    def __init__(self, mir: Relation, features: str, version: int = 1) -> None:
        self._mir: Relation | None = mir
        self._stored = _StoredLocal(features, version, _raw(mir))
        self.features = features
        self.version = version

    @classmethod
    def read(cls, data: bytes) -> LocalExpression:
        """Decode an entry; its expression is decoded later.

        Raises:
            msgspec.MsgspecError: these bytes are not such an entry.
        """
        made = cls.__new__(cls)
        stored = _LOCALS.decode(data)
        made._mir, made._stored = None, stored
        made.features, made.version = stored.features, stored.version
        return made

    @property
    def mir(self) -> Relation:
        """The expression, decoded at first use.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        if self._mir is None:
            self._mir = _RELATIONS.decode(self._stored.mir)
        return self._mir

    @property
    def index_imports(self) -> tuple[GlobalId, ...]:
        """Always empty: local optimization uses no index."""
        return ()

    def to_bytes(self) -> bytes:
        """The encoding that `read` decodes."""
        return msgspec.msgpack.encode(self._stored)


class GlobalExpressions:
    """A dataflow's plan at both levels: what EXPLAIN shows of a deployed object, and what runs. Immutable; equal by
    value.

    Attributes:
        index_imports: the indexes that the MIR or the physical plan uses.
        sealed: the physical plan, encoded, with the ids of what it reads.
        features: the optimizer features it was made with, as `spell_features` writes them.
        version: the version of the object's definition.
        notices: the optimizer's notices.
        offered: the indexes that the optimizer could choose from.
    """

    def __init__(
        self,
        mir: MirDataflow,
        plan: DataflowDescription,
        index_imports: tuple[GlobalId, ...],
        features: str,
        version: int = 1,
        notices: tuple[StoredNotice, ...] = (),
        outline: Outline | None = None,
        offered: Offered = Offered(),  # noqa: B008  it is immutable
    ) -> None:
        sealed = SealedDataflow.of(plan)
        stored = _StoredGlobal(
            features, version, index_imports, offered, notices, _raw(mir), sealed, _raw(outline), 0
        )
        self._take(_with_checksum(stored))

    def _take(self, stored: _StoredGlobal) -> None:
        self._stored = stored
        self.sealed = stored.plan
        self._outline: Outline | None = None
        self._outlined = False
        self.features = stored.features
        self.version = stored.version
        self.index_imports = stored.index_imports
        self.notices = stored.notices
        self.offered = stored.offered

    @classmethod
    def read(cls, data: bytes) -> GlobalExpressions:
        """Decode an entry's header; the rest is decoded later.

        Raises:
            msgspec.MsgspecError: these bytes are not such an entry.
        """
        made = cls.__new__(cls)
        made._take(_GLOBALS.decode(data))
        return made

    @property
    def mir(self) -> MirDataflow:
        """The dataflow's globally optimized MIR, decoded on each call; for EXPLAIN.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        return _DATAFLOWS.decode(self._stored.mir)

    @property
    def plan(self) -> DataflowDescription:
        """The physical plan.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        return self.sealed.desc

    @property
    def outline(self) -> Outline | None:
        """What is known of the plan as rendered (`mzsql.render.rendered.Outline`); None where it was not rendered yet.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        if not self._outlined:
            self._outline, self._outlined = _OUTLINES.decode(self._stored.outline), True
        return self._outline

    @property
    def arrangements(self) -> tuple[tuple[int, str], ...] | None:
        """Node and fingerprint of each arrangement in the outline, without decoding the rest of it; None without an outline.

        Raises:
            msgspec.MsgspecError: the bytes are not an outline.
        """
        found = _ARRANGEMENTS.decode(self._stored.outline)
        if found is None:
            return None
        return tuple((one.lir_id, one.fingerprint) for one in found.arrangements)

    @property
    def lir_ids(self) -> tuple[int, ...]:
        """The ids of the plan's nodes; the plan is decoded only where there is no outline.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        found = _ARRANGEMENTS.decode(self._stored.outline)
        if found is not None:
            return found.lir_ids
        return tuple(node.lir_id for built in self.plan.objects for node in walk(built.plan))

    @property
    def is_outlined(self) -> bool:
        """Whether there is an outline; decodes nothing."""
        return memoryview(self._stored.outline) != _NOTHING

    def as_taken_up(self) -> tuple[SealedDataflow, Outline | None]:
        """The plan and its outline, as a replica is given them."""
        return self.sealed, self.outline

    def check(self) -> None:
        """Verify the checksum, and decode the outline, which starting the dataflow needs.

        Raises:
            msgspec.MsgspecError: the bytes are not those that were written.
        """
        if self._stored.summed() != self._stored.checksum:
            raise msgspec.DecodeError("its checksum is another")
        _ = self.outline

    def with_outline(self, outline: Outline) -> GlobalExpressions:
        """This entry with an outline."""
        return self._of(
            _with_checksum(msgspec.structs.replace(self._stored, outline=_raw(outline)))
        )

    def to_bytes(self) -> bytes:
        """The encoding that `read` decodes."""
        return msgspec.msgpack.encode(self._stored)

    def replaced(self, **fields: Any) -> GlobalExpressions:
        """This entry with some stored fields replaced and the checksum left as it was, so a changed checksummed field
        reads as damage.
        """
        return self._of(msgspec.structs.replace(self._stored, **fields))

    @staticmethod
    def _of(stored: _StoredGlobal) -> GlobalExpressions:
        made = GlobalExpressions.__new__(GlobalExpressions)
        made._take(stored)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalExpressions) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())
