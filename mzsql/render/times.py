"""Stand-ins for times, in statements that are rendered once and run at many times.

Promise: they are numbers that occur in a statement only if a user writes them on purpose; whoever replaces them
checks for that (`mzsql.render.rewrites.templates`).
"""

from __future__ import annotations

from mzsql.repr.frontier import MAX_TIMESTAMP, Timestamp

#: Stands for `lower` in a template: an hour before the last possible time.
LOWER: Timestamp = MAX_TIMESTAMP - 3_600_000
#: Stands for `upper`; below, for the time of a hydration.
UPPER: Timestamp = MAX_TIMESTAMP - 1_800_000
AS_OF: Timestamp = MAX_TIMESTAMP - 900_000

#: All stand-ins, including that for the time before `lower`.
STAND_INS = (LOWER, LOWER - 1, UPPER, AS_OF)
