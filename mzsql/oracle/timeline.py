"""The names of timelines: each has its own row in an oracle."""

from __future__ import annotations

EPOCH_MS = "epoch_ms"
"""Tables, views, and everything stamped with the wall clock: milliseconds since the epoch."""

CATALOG = "catalog"
"""The catalog's own time."""
