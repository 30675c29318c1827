"""Access to the indexes of a replica, for its other dataflows and for peeks.

Promise: an index is read through a handle of its arrangement, which stays open until whoever opened it releases it.
"""

from __future__ import annotations

import pyarrow as pa

from mzsql.compute.protocol import Peek
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.dataflow import index_desc
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.repr.errors import ObjectInUse, ResultTooLarge
from mzsql.repr.ids import GlobalId


class Indexes:
    """The indexes of one replica. Thread-safe."""

    def __init__(self, installed: Installed, arrangements: ArrangementShards) -> None:
        self._installed = installed
        self._arrangements = arrangements

    def open(self, gid: GlobalId) -> Arrangement:
        """Open a handle of an index, to be released with `ArrangementShards.release`.

        Raises:
            UndefinedObject: no such index is installed.
            ObjectInUse: it is not hydrated yet.
        """
        flow = self._installed.get(gid)
        found = self._arrangements.find(index_desc(gid, flow.spec.desc, flow.rendered))
        if found is None:
            raise ObjectInUse(f"index {gid} is not hydrated yet")
        return found

    def rows(self, peek: Peek) -> pa.Table:
        """All rows of a peek's index at its time: the columns asked for, mz_time, mz_diff.

        Raises:
            ResultTooLarge: they exceed what may be brought into one process.
        """
        arrangement = self.open(peek.id)
        try:
            if not arrangement.fits_driver(arrangement.parts(peek.as_of), None):
                raise ResultTooLarge(
                    f"index {peek.id} has more rows than a peek may bring into one process"
                )
            table = arrangement.read(peek.as_of)
        finally:
            self._arrangements.release(arrangement, retire=False)
        return (
            table if peek.columns is None else table.select([*peek.columns, "mz_time", "mz_diff"])
        )
