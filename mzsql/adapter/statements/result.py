"""What a statement answers."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mzsql.adapter.statements.copy_to import CopyOut
from mzsql.adapter.subscribe.subscription import Subscription
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import RelationDesc


class Result(msgspec.Struct, frozen=True):
    """What a statement answers.

    Attributes:
        tag: PostgreSQL's command tag: ``SELECT 3``, ``INSERT 0 1``, ``CREATE TABLE``.
        desc: names and types of the rows' columns; None where the statement has no rows.
        rows: the rows.
        count: rows returned or changed; -1 where neither makes sense.
        ts: the time a query was read at, if at one.
        stream: the rows of a SUBSCRIBE, as they come, instead of `rows`; who takes them closes it.
        copy: the bytes of a COPY … TO STDOUT, instead of `rows`; of a SUBSCRIBE, then its rows are taken there.
        defined: whether it changed what exists: DDL, or a COMMIT that carried some out.
    """

    tag: str
    desc: RelationDesc | None = None
    rows: pa.Table | None = None
    count: int = -1
    ts: Timestamp | None = None
    stream: Subscription | None = None
    copy: CopyOut | None = None
    defined: bool = False

    def close(self) -> None:
        """End the rows that come later, where nobody takes them. Idempotent."""
        if self.copy is not None:
            self.copy.close()
        if self.stream is not None:
            self.stream.close()
