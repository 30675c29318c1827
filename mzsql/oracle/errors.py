"""The errors of oracles beyond those of their backends."""

from __future__ import annotations

from mzsql.location import Determinate, UsageError
from mzsql.repr.errors import SqlError, Unsupported


class OracleTimeout(Determinate):
    """The caller's own time was over before the oracle had answered; nothing was allocated or applied for it."""


class OracleClosed(Determinate):
    """What served the timestamps here was closed; nothing was allocated or applied."""


class OracleFenced(SqlError):
    """The timestamps that this process served, or their implementation, are somebody else's now; what was read meanwhile may be too old."""

    sqlstate = "55000"


class ClockSkew(UsageError):
    """This machine's clock is ahead of what others know; nothing was allocated or applied."""

    sqlstate = "55000"


class OracleReadOnly(Unsupported):
    """A read-only process was about to move an oracle."""

    sqlstate = "25006"


class OutdatedSetting(SqlError):
    """A switch was about to be made by a setting that has changed meanwhile; nothing was done, ask for the setting again."""

    sqlstate = "40001"
