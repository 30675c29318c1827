"""Errors that backends raise, in two tiers.

Promise: a `UsageError` says that the request was invalid: it is raised at once, and nothing changed. A `LocationError`
says that a backend failed: `Determinate` where the operation certainly did not happen (any caller may retry),
`Indeterminate` where it may have happened (only a caller with an idempotent operation, or an idempotency token, may
retry). Source: Materialize's persist design, two-tiered error handling.
"""

from __future__ import annotations

from mzsql.repr.errors import InvalidParameter, SqlError


class UsageError(SqlError):
    """An invalid request; nothing changed."""

    sqlstate = "22023"


class LocationError(SqlError):
    """A backend (Blob, Consensus or timestamp oracle) failed; the message names it without its secrets."""

    sqlstate = "58030"


class Determinate(LocationError):
    """The operation certainly did not happen."""


class Indeterminate(LocationError):
    """The operation may or may not have happened."""


class UnknownScheme(InvalidParameter):
    """No installed plugin, or more than one, serves a URL's scheme."""


class ContestedScheme(UnknownScheme):
    """More than one installed plugin serves a URL's scheme."""


class InvalidUrl(InvalidParameter):
    """A URL that its backend does not understand."""


class PluginFailed(LocationError):
    """A plugin broke its contract: it raised something that no backend may raise, or returned something that is no
    backend.
    """


class PluginRelationFailed(SqlError):
    """A plugin's function for a system relation's rows failed; only the query that reads the relation fails."""

    sqlstate = "38000"


class PluginWarning(UserWarning):
    """Something is wrong with a plugin; everything else works."""
