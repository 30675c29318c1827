"""What the processes of the source writers' test do: step without end, on a source whose messages are a function of their offset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection

import pyarrow as pa

from mzsql.persist import PersistClient, Settings, SystemClock
from mzsql.storage import BindingMinter, SourceWriter

SCHEMA = pa.schema([("partition", pa.string()), ("offset", pa.int64()), ("payload", pa.string())])
PARTITIONS = ("0", "1", "2")
SETTINGS = Settings(rollup_interval=16, compaction_fanout=3, inline_bytes=1500)


class Steady:
    """Each partition gets 150 messages a second from ``start`` on."""

    def __init__(self, start: float) -> None:
        self.start = start

    def high_watermarks(self) -> Mapping[str, int]:
        last = int((time.time() - self.start) * 150)
        return {partition: last + place for place, partition in enumerate(PARTITIONS)}

    def read(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table:
        tables = []
        for partition, (first, last) in ranges.items():
            offsets = list(range(first, last + 1))
            payloads = [f"{partition}/{offset}" for offset in offsets]
            columns = [[partition] * len(offsets), offsets, payloads]
            tables.append(
                pa.table(
                    [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)],
                    schema=SCHEMA,
                )
            )
        return pa.concat_tables([SCHEMA.empty_table(), *tables])


def client_at(place: str) -> PersistClient:
    return PersistClient.open(
        blob=f"file:{place}/blob", consensus=f"sqlite:{place}/c.db", settings=SETTINGS
    )


def instance(
    place: str, bindings: str, data: str, start: float, asks: bool, pipe: Connection
) -> None:
    """A minter and a writer; it asks for bindings or mints them centrally. Reports each upper that its writer has reached."""
    with client_at(place) as client:
        source = Steady(start)
        minter = BindingMinter(client, bindings, now=SystemClock().now_ms)
        writer = SourceWriter(
            client,
            source,
            bindings=bindings,
            shard_id=data,
            schema=SCHEMA,
            minter=minter if asks else None,
        )
        while True:
            if not asks:
                minter.mint(source.high_watermarks())
            pipe.send(writer.step())
