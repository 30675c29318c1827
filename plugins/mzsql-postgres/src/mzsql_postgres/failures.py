"""Failures between this process and the server, and whether a retry makes sense.

Promise: an error that the server reports for a statement, which is a transaction by itself, means that it was rolled
back. A connection lost during a statement (the server's shutdown, the network) leaves its outcome unknown, since the
commit may have come first. A failure before the statement was sent means it was not executed. libpq has no error codes
for refused connections, so their reasons are recognized by the English texts; an unknown one counts as temporary.
"""

from __future__ import annotations

import enum
import re

from psycopg import pq


class Outlook(enum.Enum):
    """What a failure means for the statement."""

    DOUBTFUL = "doubtful"
    """The statement may have been carried out; trying again may succeed."""
    PASSING = "passing"
    """It was not carried out; trying again may succeed."""
    LASTING = "lasting"
    """It was not carried out, and would not be another time."""


class Failed(Exception):
    """A statement, or the connection for it, failed. ``lost``: the connection is unusable."""

    def __init__(
        self,
        message: str,
        outlook: Outlook,
        *,
        sqlstate: str = "",
        hint: str | None = None,
        lost: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.outlook = outlook
        self.sqlstate = sqlstate
        self.hint = hint
        self.lost = lost


class OutOfTime(Failed):
    """The time was over before an attempt; the failure before it is the reason to report."""

    def __init__(self) -> None:
        super().__init__("there was no time left to connect", Outlook.PASSING, lost=True)


_PASSING_STATES = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "55P03",  # lock timeout
    "57014",  # cancelled, by the statement timeout too
    "53300",  # too many connections
    "57P03",  # cannot connect now
    "53400",  # a configured limit
    "25006",  # read-only transaction: until the fail-over is done
}
_ENDING_CLASS = "57P"
"""The SQLSTATE class for a session ended during a statement: shutdown, crash, timeout."""

_HINTS = {
    "53100": "The server's disk is full: make room there.",
    "25006": "The server takes no writes: it is a standby, or default_transaction_read_only is on. Name the primary in the URL.",
    "53300": "Raise max_connections on the server, or lower pool_max_size in the URLs.",
    "55P03": "Another session holds the lock for long: see pg_locks. lock_timeout in the URL says how long to wait.",
}

_LASTING_TEXTS = (
    (
        r"password authentication failed|no password supplied",
        "Check the user and the password in the URL, PGPASSWORD or ~/.pgpass.",
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        "Let pg_hba.conf on the server admit this user from this machine; it may insist on TLS.",
    ),
    (r'database "[^"]*" does not exist', "Create the database, or name another one in the URL."),
    (r'role "[^"]*" does not exist', "Create the role, or name another user in the URL."),
    (r"permission denied for database", "Grant the user CONNECT on the database."),
    (r"is not permitted to log in", "Give the role LOGIN."),
    (
        r"does not support SSL|certificate|SSL error|root\.crt",
        "See sslmode, sslrootcert, sslcert and sslkey in libpq's documentation.",
    ),
    (
        r'definition of service "[^"]*" not found|service file',
        "Check the service in the URL and pg_service.conf.",
    ),
)

_PASSING_TEXTS = (
    ("too many|connection slots", _HINTS["53300"]),
    # Temporary, since a standby may be about to be promoted.
    ("session is read-only|server is in hot standby mode", _HINTS["25006"]),
)


def refused(text: str) -> Failed:
    """The failure to connect that libpq's text describes."""
    text = " ".join(text.split())
    for pattern, hint in _LASTING_TEXTS:
        if re.search(pattern, text):
            return Failed(text, Outlook.LASTING, hint=hint, lost=True)
    hint = "Check that the server runs and can be reached."
    for pattern, known in _PASSING_TEXTS:
        if re.search(pattern, text):
            hint = known
    return Failed(text, Outlook.PASSING, hint=hint, lost=True)


def reported(result: pq.abc.PGresult) -> Failed:
    """The failure of a statement that an error from the server, or from libpq in its place, describes."""
    field = pq.DiagnosticField
    sqlstate = (result.error_field(field.SQLSTATE) or b"").decode()
    message = (result.error_field(field.MESSAGE_PRIMARY) or result.error_message).decode(
        errors="replace"
    )
    message = " ".join(message.split())
    hint = _HINTS.get(sqlstate)
    if not sqlstate or (sqlstate.startswith(_ENDING_CLASS) and sqlstate != "57P03"):
        return Failed(message, Outlook.DOUBTFUL, sqlstate=sqlstate, hint=hint, lost=True)
    # In classes 08, 58 and XX the server is unsure about its own state.
    if sqlstate[:2] in ("08", "58", "XX", "40") and sqlstate not in _PASSING_STATES:
        return Failed(message, Outlook.DOUBTFUL, sqlstate=sqlstate, hint=hint, lost=True)
    outlook = Outlook.PASSING if sqlstate in _PASSING_STATES else Outlook.LASTING
    # A read-only session remains so; a new connection may reach the new primary.
    return Failed(message, outlook, sqlstate=sqlstate, hint=hint, lost=sqlstate == "25006")
