"""The names of timelines; each has a row of its own in an oracle."""

from __future__ import annotations

EPOCH_MS = "epoch_ms"
"""The timeline of tables, views and everything stamped by the wall clock: milliseconds since the epoch."""

CATALOG = "catalog"
"""The timeline of DDL timestamps, also in milliseconds since the epoch, and strictly increasing however clocks differ.
Reading the catalog needs no timestamp: reading its shard is linearizable by itself, and every statement begins with
that.
"""

WALL_CLOCK = frozenset({EPOCH_MS, CATALOG})
"""The timelines that must not run far ahead of the clock."""
