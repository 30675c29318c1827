"""The result of a statement."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mzsql.adapter.statements.copy_to import CopyOut
from mzsql.adapter.subscribe.subscription import Subscription
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import RelationDesc


class Result(msgspec.Struct, frozen=True):
    """The result of a statement.

    Attributes:
        tag: PostgreSQL's command tag: ``SELECT 3``, ``INSERT 0 1``, ``CREATE TABLE``.
        desc: names and types of the rows' columns; None where the statement returns no rows.
        rows: the rows.
        count: rows returned or changed; -1 where neither applies.
        ts: the timestamp that a query was read at, if at one.
        stream: the rows of a SUBSCRIBE as they come, instead of `rows`; the consumer closes it.
        copy: the bytes of a COPY … TO STDOUT, instead of `rows`; a COPY of a SUBSCRIBE takes its rows from there too.
        defined: whether the catalog's objects changed: DDL, or a COMMIT of staged DDL.
        size: the bytes of `rows` in memory, where they are known already.
    """

    tag: str
    desc: RelationDesc | None = None
    rows: pa.Table | None = None
    count: int = -1
    ts: Timestamp | None = None
    stream: Subscription | None = None
    copy: CopyOut | None = None
    defined: bool = False
    size: int | None = None

    def close(self) -> None:
        """Close the stream or the copy where nobody consumes it. Idempotent."""
        if self.copy is not None:
            self.copy.close()
        if self.stream is not None:
            self.stream.close()
