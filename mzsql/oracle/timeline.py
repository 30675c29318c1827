"""The names of timelines: each has its own row in an oracle."""

from __future__ import annotations

EPOCH_MS = "epoch_ms"
"""Tables, views, and everything stamped with the wall clock: milliseconds since the epoch."""

CATALOG = "catalog"
"""The catalog's: the times of DDL, in milliseconds since the epoch too, and strictly increasing however clocks differ.

Reading the catalog needs no timestamp: a fetch of its shard is linearizable by itself, and every statement begins with one.
"""

WALL_CLOCK = frozenset({EPOCH_MS, CATALOG})
"""The timelines that must not run far ahead of the clock."""
