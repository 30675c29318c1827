"""A physical plan in encoded form, with the few facts that are mostly asked for.

Promise: what a dataflow exports and imports is available at once; the plan itself is decoded once, when it is asked
for. Equal bytes are equal plans of one program version. (An environment may have thousands of plans, most of which
never have to be decoded.)
"""

from __future__ import annotations

import hashlib

import msgspec

from mzsql.lir.plan import DataflowDescription, IndexExport
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property

_PLANS = msgspec.msgpack.Decoder(DataflowDescription)


class SealedDataflow(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """A dataflow's description in encoded form; make it with `of`.

    Attributes:
        indexes: the indexes that it imports, by id.
        sources: the collections that it imports besides.
        exports_index: whether it exports an index.
        data: the encoded description.
    """

    indexes: tuple[GlobalId, ...]
    sources: tuple[GlobalId, ...]
    exports_index: bool
    data: msgspec.Raw

    @classmethod
    def of(cls, desc: DataflowDescription) -> SealedDataflow:
        """Encode a description."""
        made = cls(
            tuple(one.id for one in desc.index_imports),
            tuple(one.id for one in desc.source_imports),
            isinstance(desc.export, IndexExport),
            msgspec.Raw(msgspec.msgpack.encode(desc)),
        )
        # Fills the cache of the property `desc`: the process that encodes a plan need not decode it.
        made.__dict__["desc"] = desc
        return made

    @lazy_property
    def desc(self) -> DataflowDescription:
        """The decoded description.

        Raises:
            msgspec.MsgspecError: the bytes are no description.
        """
        return _PLANS.decode(self.data)

    @lazy_property
    def digest(self) -> str:
        """Identifies the plan among all others: 24 hexadecimal digits of a SHA-256."""
        return hashlib.sha256(self.data).hexdigest()[:24]
