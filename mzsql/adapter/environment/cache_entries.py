"""What the expression cache keeps of an object, and its bytes.

Promise: an entry is read in steps: `GlobalExpressions.read` looks at what says whether it is of use, a few microseconds; `check` compares
its bytes with their checksum; `plan` and `outline` are decoded when they are asked for, once, `mir`, which people ask for, each time. Bytes
are those of one build, so no format of an entry is ever migrated.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.relation import Relation
from mzsql.lir.plan import DataflowDescription
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.ids import GlobalId

LOCAL = "local"
GLOBAL = "global"
RUNNING = "running"
"""What runs of an object, where a new index has put, or the end of an old one has left, another plan for its next start."""


WAITING = "waiting"
"""That a deployment of this build waits to be promoted."""
STANDING = "standing"
"""How far a waiting deployment is with an object."""
ARRANGEMENT = "arrangement"
"""The shard of an arrangement that a waiting deployment has filled."""
CHARGE = "charge"
"""That this build's deployment is in charge."""
OF_DEPLOYMENTS = frozenset({WAITING, STANDING, ARRANGEMENT, CHARGE})
"""Kinds of entries that are no plans; every version spells them so."""


#: Checksums are made of so many bytes at a time: zlib lets go of the interpreter's lock for longer ones, and getting that back while
#: others run takes a hundred times as long as the sum.
_PIECE = 4096


class StoredNotice(msgspec.Struct, frozen=True, array_like=True):
    """A remark of the optimizer on a plan.

    Attributes:
        kind, message, hint: as `mzsql.explain.Notice` has them.
        redacted_message, redacted_hint: without the literals of the definition.
        about: the objects without which it says nothing.
    """

    kind: str
    message: str
    hint: str
    redacted_message: str
    redacted_hint: str
    about: tuple[GlobalId, ...] = ()


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """What indexes a plan was made among: where there are others now, it would be made otherwise.

    Attributes:
        on: the objects whose indexes were asked for.
        indexes: those that there were, whether the plan reads them or not.
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
        """The checksum of what is decoded later."""
        found = 0
        for part in (self.mir, self.plan.data, self.outline):
            data = memoryview(part)
            for at in range(0, len(data), _PIECE):
                found = zlib.crc32(data[at : at + _PIECE], found)
        return found


_LOCALS = msgspec.msgpack.Decoder(_StoredLocal)
_GLOBALS = msgspec.msgpack.Decoder(_StoredGlobal)
_RELATIONS: msgspec.msgpack.Decoder[Relation] = msgspec.msgpack.Decoder(Relation)
_DATAFLOWS = msgspec.msgpack.Decoder(MirDataflow)
_OUTLINES: msgspec.msgpack.Decoder[Outline | None] = msgspec.msgpack.Decoder(Outline | None)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _with_checksum(stored: _StoredGlobal) -> _StoredGlobal:
    return msgspec.structs.replace(stored, checksum=stored.summed())


class LocalExpression:
    """A view's locally optimized MIR.

    Attributes:
        features: the optimizer features it was made with, spelled.
        version: the version of the view's definition.
    """

    def __init__(self, mir: Relation, features: str, version: int = 1) -> None:
        self._mir: Relation | None = mir
        self._stored = _StoredLocal(features, version, _raw(mir))
        self.features = features
        self.version = version

    @classmethod
    def read(cls, data: bytes) -> LocalExpression:
        """The entry of these bytes; raises msgspec.MsgspecError where they are none."""
        made = cls.__new__(cls)
        stored = _LOCALS.decode(data)
        made._mir, made._stored = None, stored
        made.features, made.version = stored.features, stored.version
        return made

    @property
    def mir(self) -> Relation:
        """The expression; raises msgspec.MsgspecError where its bytes are none."""
        if self._mir is None:
            self._mir = _RELATIONS.decode(self._stored.mir)
        return self._mir

    @property
    def index_imports(self) -> tuple[GlobalId, ...]:
        """The indexes that it uses: none, whatever they are."""
        return ()

    def to_bytes(self) -> bytes:
        """What `read` reads."""
        return msgspec.msgpack.encode(self._stored)


class GlobalExpressions:
    """A dataflow's plan: what EXPLAIN shows of a deployed object and what runs. Immutable; equal by value.

    Attributes:
        index_imports: the indexes that either level of it uses.
        sealed: the physical plan, with what it reads.
        features: the optimizer features it was made with, spelled.
        version: the version of the object's definition.
        notices: what the optimizer had to say.
        offered: the indexes that it was made among.
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
        """The entry of these bytes; raises msgspec.MsgspecError where they are none."""
        made = cls.__new__(cls)
        made._take(_GLOBALS.decode(data))
        return made

    @property
    def mir(self) -> MirDataflow:
        """The dataflow's globally optimized MIR, for people; raises msgspec.MsgspecError where its bytes are none."""
        return _DATAFLOWS.decode(self._stored.mir)

    @property
    def plan(self) -> DataflowDescription:
        """The physical plan; raises msgspec.MsgspecError where its bytes are none."""
        return self.sealed.desc

    @property
    def outline(self) -> Outline | None:
        """What the plan is as rendered, if that is known; raises msgspec.MsgspecError where its bytes are none."""
        if not self._outlined:
            self._outline, self._outlined = _OUTLINES.decode(self._stored.outline), True
        return self._outline

    def as_taken_up(self) -> tuple[SealedDataflow, Outline | None]:
        """The plan, and its outline."""
        return self.sealed, self.outline

    def check(self) -> None:
        """Compare what is decoded later with its checksum, and decode what taking it up needs; raises msgspec.MsgspecError where that is
        not what was written.
        """
        if self._stored.summed() != self._stored.checksum:
            raise msgspec.DecodeError("its checksum is another")
        _ = self.outline

    def with_outline(self, outline: Outline) -> GlobalExpressions:
        """This plan, with what it is as rendered."""
        return self._of(
            _with_checksum(msgspec.structs.replace(self._stored, outline=_raw(outline)))
        )

    def to_bytes(self) -> bytes:
        """What `read` reads."""
        return msgspec.msgpack.encode(self._stored)

    def replaced(self, **fields: Any) -> GlobalExpressions:
        """As this one, but for some of what is stored: damaged, where that has a checksum."""
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
