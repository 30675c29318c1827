"""Errors of the persist location: what a backend raises, in two tiers.

Promise: a `UsageError` says the caller asked for something invalid; it is raised at once and nothing has changed. A `LocationError`
says that a backend could not do its work: `Determinate` when the act surely did not happen (any caller may retry), `Indeterminate`
when it may have happened (only a caller with an idempotent act, or an idempotency token, may retry). Source: the persist design's
two-tiered error handling.
"""

from __future__ import annotations

from mzsql.repr.errors import InvalidParameter, SqlError


class UsageError(SqlError):
    """An invalid request; nothing has changed."""

    sqlstate = "22023"


class LocationError(SqlError):
    """A backend (Blob, Consensus or timestamp oracle) failed; the message names it without its secrets."""

    sqlstate = "58030"


class Determinate(LocationError):
    """The act surely did not happen."""


class Indeterminate(LocationError):
    """The act may or may not have happened."""


class UnknownScheme(InvalidParameter):
    """No installed plugin, or more than one, serves a URL's scheme."""


class ContestedScheme(UnknownScheme):
    """More than one installed plugin serves a URL's scheme."""


class InvalidUrl(InvalidParameter):
    """A URL its backend cannot make sense of."""


class PluginFailed(LocationError):
    """A plugin broke its promise: it raised what no backend may raise, or answered with what is no backend."""


class PluginRelationFailed(SqlError):
    """The function that yields the rows of a plugin's system relation failed; the query that read it fails, nothing else."""

    sqlstate = "38000"


class PluginWarning(UserWarning):
    """Something is wrong with a plugin; the rest works."""
