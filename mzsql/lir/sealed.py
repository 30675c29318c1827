"""A physical plan as its bytes, which is all that most of its life asks for.

Promise: what says where a dataflow belongs is there at once (what it exports, reads and reads by index); the plan itself is decoded when
it is asked for, once. Equal bytes are equal plans of one program.
"""

from __future__ import annotations

import functools
import hashlib

import msgspec

from mzsql.lir.plan import DataflowDescription, IndexExport
from mzsql.repr.ids import GlobalId

_PLANS = msgspec.msgpack.Decoder(DataflowDescription)


class SealedDataflow(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """A dataflow's description, sealed; make it with `of`.

    Attributes:
        indexes: the indexes that it imports, by id.
        sources: the collections that it imports besides.
        exports_index: whether its export is an index.
        data: the description's bytes.
    """

    indexes: tuple[GlobalId, ...]
    sources: tuple[GlobalId, ...]
    exports_index: bool
    data: msgspec.Raw

    @classmethod
    def of(cls, desc: DataflowDescription) -> SealedDataflow:
        """A description, sealed."""
        made = cls(
            tuple(one.id for one in desc.index_imports),
            tuple(one.id for one in desc.source_imports),
            isinstance(desc.export, IndexExport),
            msgspec.Raw(msgspec.msgpack.encode(desc)),
        )
        # What `desc` would find; nobody need decode what is here.
        made.__dict__["desc"] = desc
        return made

    @functools.cached_property
    def desc(self) -> DataflowDescription:
        """The description; raises msgspec.MsgspecError where the bytes are none."""
        return _PLANS.decode(self.data)

    @functools.cached_property
    def digest(self) -> str:
        """Names the plan among all others."""
        return hashlib.sha256(self.data).hexdigest()[:24]
