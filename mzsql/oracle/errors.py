"""The errors of oracles, besides those of their backends."""

from __future__ import annotations

from mzsql.location import Determinate, UsageError
from mzsql.repr.errors import SqlError, Unsupported


class OracleTimeout(Determinate):
    """The caller's time was over before the oracle answered; nothing was allocated or applied for it."""


class OracleClosed(Determinate):
    """What served the timestamps in this process was closed; nothing was allocated or applied."""


class OracleFenced(SqlError):
    """Another process serves the timestamps now, or another implementation does; what was read meanwhile may be too
    old.
    """

    sqlstate = "55000"


class ClockSkew(UsageError):
    """This machine's clock is ahead of what others confirm; nothing was allocated or applied."""

    sqlstate = "55000"


class OracleReadOnly(Unsupported):
    """A read-only process was about to move an oracle."""

    sqlstate = "25006"


class OutdatedSetting(SqlError):
    """A switch was about to follow a setting that has changed meanwhile; nothing was done: read the setting again."""

    sqlstate = "40001"
