"""The times that stand for others in a statement that is written once and run at many.

Promise: they are numbers that nothing else in a statement is mistaken for but by a user who writes them on purpose, which whoever
replaces them checks (`mzsql.render.templates`).
"""

from __future__ import annotations

from mzsql.repr.frontier import MAX_TIMESTAMP, Timestamp

#: Stands for `lower` in a template: a time that nothing else in a statement can be mistaken for (an hour before the last one).
LOWER: Timestamp = MAX_TIMESTAMP - 3_600_000
#: And for `upper`, and for the time of a hydration.
UPPER: Timestamp = MAX_TIMESTAMP - 1_800_000
AS_OF: Timestamp = MAX_TIMESTAMP - 900_000

#: All of them, and the time before `LOWER`.
STAND_INS = (LOWER, LOWER - 1, UPPER, AS_OF)
