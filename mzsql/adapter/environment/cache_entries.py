"""The entries of the expression cache, and their encoding.

Promise: reading an entry is lazy. A plan's entry is a small header and a body. `GlobalExpressions.read` decodes the header
alone, in a few microseconds whatever the plan's size: whether the entry applies, and what relations about dataflows show
of it. `check` compares the body with its checksum; `plan` and `outline` are decoded once, when first asked for; `mir`,
which only EXPLAIN needs, on each call. An entry is read only by the build that wrote it, and one of another format is told
by its first byte (`OtherFormat`), so no format is ever migrated: such a plan is made again.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

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


Buffer: TypeAlias = bytes | memoryview | msgspec.Raw


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


class OtherFormat(msgspec.DecodeError):
    """An entry that was written in another format than this program's."""


#: The first byte of a plan's entry, which no MessagePack value begins with.
_MARK = b"\xc1"
#: The first byte of the format before it, which was a MessagePack array of nine.
_FORMER = b"\x99"
#: Bytes of the length of the header, which follow the mark.
_LENGTH = 4


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a plan without decoding it; the fields from ``indexes`` to ``arrangements`` are copies from the body.

    ``lir_ids`` and ``arrangements`` (nodes and fingerprints) are None where there is no outline. The body is the MIR, in
    ``mir_bytes``, the physical plan, in ``plan_bytes``, and the outline.
    """

    features: str
    version: int
    index_imports: tuple[GlobalId, ...]
    offered: Offered
    notices: tuple[StoredNotice, ...]
    indexes: tuple[GlobalId, ...]
    sources: tuple[GlobalId, ...]
    exports_index: bool
    lir_ids: tuple[int, ...] | None
    arrangements: tuple[tuple[int, str], ...] | None
    mir_bytes: int
    plan_bytes: int
    checksum: int = 0

    def summed(self, body: memoryview) -> int:
        """The CRC-32 of a body, and of how it is divided."""
        found = zlib.crc32(b"%d %d" % (self.mir_bytes, self.plan_bytes))
        for at in range(0, len(body), _PIECE):
            found = zlib.crc32(body[at : at + _PIECE], found)
        return found


_LOCALS = msgspec.msgpack.Decoder(_StoredLocal)
_HEADS = msgspec.msgpack.Decoder(_Head)
_RELATIONS: msgspec.msgpack.Decoder[Relation] = msgspec.msgpack.Decoder(Relation)
_DATAFLOWS = msgspec.msgpack.Decoder(MirDataflow)
_OUTLINES: msgspec.msgpack.Decoder[Outline | None] = msgspec.msgpack.Decoder(Outline | None)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


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
        features: the optimizer features it was made with, as `spell_features` writes them.
        version: the version of the object's definition.
    """

    # What one that was read has not made yet.
    _sealed: SealedDataflow | None = None
    _outline: Outline | None = None
    _decoded = False
    _data: Buffer

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
        self._sealed = sealed = SealedDataflow.of(plan)
        head = _Head(
            features,
            version,
            index_imports,
            offered,
            notices,
            sealed.indexes,
            sealed.sources,
            sealed.exports_index,
            *_outlined(outline),
            0,
            0,
        )
        self._put_together(head, msgspec.msgpack.encode(mir), sealed.data, outline)

    def _put_together(
        self, head: _Head, mir: Buffer, plan: Buffer, outline: Outline | None
    ) -> None:
        parts = (memoryview(mir), memoryview(plan), msgspec.msgpack.encode(outline))
        body = memoryview(b"".join(parts))
        head = msgspec.structs.replace(head, mir_bytes=len(parts[0]), plan_bytes=len(parts[1]))
        self._take(msgspec.structs.replace(head, checksum=head.summed(body)), body)

    def _take(self, head: _Head, body: memoryview) -> None:
        self._head, self._data, self._begins = head, body, 0

    @property
    def _body(self) -> memoryview:
        """What follows the header."""
        return memoryview(self._data)[self._begins :]

    @property
    def features(self) -> str:
        """See above."""
        return self._head.features

    @property
    def version(self) -> int:
        """See above."""
        return self._head.version

    @property
    def index_imports(self) -> tuple[GlobalId, ...]:
        """See above."""
        return self._head.index_imports

    @classmethod
    def read(cls, data: bytes) -> GlobalExpressions:
        """Decode an entry's header; the rest is decoded later.

        Raises:
            OtherFormat: the entry is of another format.
            msgspec.MsgspecError: these bytes are not such an entry.
        """
        if data[:1] != _MARK:
            former = data[:1] == _FORMER
            raise (OtherFormat if former else msgspec.DecodeError)("it is of another format")
        begins = 1 + _LENGTH
        ends = begins + int.from_bytes(data[1:begins], "big")
        # Ten thousand are read while somebody waits, so nothing is made of the rest.
        made = cls.__new__(cls)
        made._head, made._data, made._begins = _HEADS.decode(data[begins:ends]), data, ends
        return made

    @property
    def notices(self) -> tuple[StoredNotice, ...]:
        """The optimizer's notices."""
        return self._head.notices

    @property
    def offered(self) -> Offered:
        """The indexes that the optimizer could choose from."""
        return self._head.offered

    @property
    def reads(self) -> tuple[GlobalId, ...]:
        """What the physical plan imports: collections, then indexes; decodes nothing."""
        return (*self._head.sources, *self._head.indexes)

    @property
    def sealed(self) -> SealedDataflow:
        """The physical plan, encoded, with the ids of what it reads."""
        if self._sealed is None:
            head = self._head
            data = msgspec.Raw(self._body[head.mir_bytes :][: head.plan_bytes])
            self._sealed = SealedDataflow(head.indexes, head.sources, head.exports_index, data)
        return self._sealed

    @property
    def mir(self) -> MirDataflow:
        """The dataflow's globally optimized MIR, decoded on each call; for EXPLAIN.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        return _DATAFLOWS.decode(self._body[: self._head.mir_bytes])

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
        if not self._decoded:
            head = self._head
            data = self._body[head.mir_bytes + head.plan_bytes :]
            self._outline, self._decoded = _OUTLINES.decode(data), True
        return self._outline

    @property
    def arrangements(self) -> tuple[tuple[int, str], ...] | None:
        """Node and fingerprint of each arrangement in the outline; None without an outline. Decodes nothing."""
        return self._head.arrangements

    @property
    def lir_ids(self) -> tuple[int, ...]:
        """The ids of the plan's nodes; the plan is decoded only where there is no outline.

        Raises:
            msgspec.MsgspecError: the stored bytes are damaged.
        """
        if self._head.lir_ids is not None:
            return self._head.lir_ids
        return tuple(node.lir_id for built in self.plan.objects for node in walk(built.plan))

    @property
    def is_outlined(self) -> bool:
        """Whether there is an outline; decodes nothing."""
        return self._head.lir_ids is not None

    def as_taken_up(self) -> tuple[SealedDataflow, Outline | None]:
        """The plan and its outline, as a replica is given them."""
        return self.sealed, self.outline

    def check(self) -> None:
        """Verify the checksum, and decode the outline, which starting the dataflow needs.

        Raises:
            msgspec.MsgspecError: the bytes are not those that were written.
        """
        if self._head.summed(self._body) != self._head.checksum:
            raise msgspec.DecodeError("its checksum is another")
        _ = self.outline

    def with_outline(self, outline: Outline) -> GlobalExpressions:
        """This entry with an outline."""
        lir_ids, arrangements = _outlined(outline)
        head = msgspec.structs.replace(self._head, lir_ids=lir_ids, arrangements=arrangements)
        made = GlobalExpressions.__new__(GlobalExpressions)
        made._sealed = self.sealed
        made._put_together(head, self._body[: head.mir_bytes], self.sealed.data, outline)
        return made

    def to_bytes(self) -> bytes:
        """The encoding that `read` decodes."""
        head = msgspec.msgpack.encode(self._head)
        return b"".join((_MARK, len(head).to_bytes(_LENGTH, "big"), head, self._body))

    def replaced(self, *, plan: bytes | None = None, **fields: Any) -> GlobalExpressions:
        """This entry with another encoded physical plan, or with some fields of the header replaced, and the checksum left
        as it was, so that another plan reads as damage.
        """
        head, body = self._head, self._body
        if plan is not None:
            after = body[head.mir_bytes + head.plan_bytes :]
            body = memoryview(b"".join((body[: head.mir_bytes], plan, after)))
            fields["plan_bytes"] = len(plan)
        made = GlobalExpressions.__new__(GlobalExpressions)
        made._take(msgspec.structs.replace(head, **fields), body)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalExpressions) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())


def _outlined(
    outline: Outline | None,
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, str], ...] | None]:
    """What a header has of an outline: the nodes, and node and fingerprint of each arrangement."""
    if outline is None:
        return None, None
    found = ((one.lir_id, one.fingerprint) for one in outline.arrangements)
    return tuple(outline.lir_ids), tuple(found)
