"""Single values as the plans carry them.

Promise: a `Datum` is one of None, bool, int, float, str, so it survives msgpack and JSON and hashes; its `SqlType` beside it
gives it its meaning. Rows of data never take this form: they stay in Arrow. The encodings:

=====================================  ==========================================================================
type                                   Datum
=====================================  ==========================================================================
boolean                                bool
smallint … bigint, uint2 … uint8       int
mz_timestamp                           int, milliseconds
real, double                           float
numeric                                str, plain decimal notation (``-12.50``), or ``NaN``
text, varchar, char, uuid, jsonb       str
bytea                                  str, hexadecimal without prefix
date                                   int, days since 1970-01-01
time                                   int, microseconds since midnight
timestamp, timestamptz                 int, microseconds since 1970-01-01 00:00:00 (UTC)
interval                               str, ``"<months> <days> <microseconds>"``
list, array                            str, JSON array of the elements' Datums
record                                 str, JSON array of the fields' Datums
map                                    str, JSON object of the values' Datums, its keys in order
range                                  str, JSON array: lower Datum, whether included, upper Datum, whether included; ``[]`` of empty
=====================================  ==========================================================================
"""

from __future__ import annotations

Datum = bool | int | float | str | None
Row = tuple[Datum, ...]
Diff = int
