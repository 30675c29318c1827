"""The indexes of a replica, as its other dataflows and peeks read them.

Promise: an index is read from its arrangement, which stays open until whoever has opened it gives it back.
"""

from __future__ import annotations

import pyarrow as pa

from mzsql.compute.protocol import Peek
from mzsql.compute.replica.arrangement import Arrangement
from mzsql.compute.replica.arrangements import Arrangements
from mzsql.compute.replica.dataflow import index_desc
from mzsql.compute.replica.installed import Installed
from mzsql.repr.errors import ObjectInUse, ResultTooLarge
from mzsql.repr.ids import GlobalId


class Indexes:
    """Those of one replica. Thread-safe."""

    def __init__(self, installed: Installed, arrangements: Arrangements) -> None:
        self._installed = installed
        self._arrangements = arrangements

    def open(self, gid: GlobalId) -> Arrangement:
        """A handle of an index, to be given back with `Arrangements.release`.

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
        """The columns that a peek asks for, mz_time and mz_diff, of all rows of its index at its time.

        Raises:
            ResultTooLarge: they are more than one process may hold.
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
