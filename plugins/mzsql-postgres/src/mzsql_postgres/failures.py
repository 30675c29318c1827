"""What went wrong between this process and the server, and whether it is worth another try.

Promise: an error the server reports for a statement means that the statement, which is a transaction by itself, was rolled back. What
ends the connection while a statement is under way (the server's shutdown, the network) leaves its outcome open, since the commit may have
come first. Everything before the statement was sent is known not to have happened. libpq hands out no code for a refused
connection, so those reasons are told apart by their English texts; one that is not recognised passes for one that will go over.
"""

from __future__ import annotations

import enum
import re

from psycopg import pq


class Outlook(enum.Enum):
    """What to expect of a failure."""

    DOUBTFUL = "doubtful"
    """The statement may have been carried out; trying again may succeed."""
    PASSING = "passing"
    """It was not carried out; trying again may succeed."""
    LASTING = "lasting"
    """It was not carried out, and would not be another time."""


class Failed(Exception):
    """A statement, or the attempt to connect for it, failed. ``lost``: the connection is of no more use."""

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
    """The time was over before anything was tried: what failed before is the reason to tell."""

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
"""The session was ended under the statement: shutdown, crash, time-out."""

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
    # A standby may be about to be promoted.
    ("session is read-only|server is in hot standby mode", _HINTS["25006"]),
)


def refused(text: str) -> Failed:
    """The failure of an attempt to connect, by libpq's text."""
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
    """The failure that an error from the server, or from libpq in its place, tells of a statement under way."""
    field = pq.DiagnosticField
    sqlstate = (result.error_field(field.SQLSTATE) or b"").decode()
    message = (result.error_field(field.MESSAGE_PRIMARY) or result.error_message).decode(
        errors="replace"
    )
    message = " ".join(message.split())
    hint = _HINTS.get(sqlstate)
    if not sqlstate or (sqlstate.startswith(_ENDING_CLASS) and sqlstate != "57P03"):
        return Failed(message, Outlook.DOUBTFUL, sqlstate=sqlstate, hint=hint, lost=True)
    # 08, 58 and XX: the server is confused about its own state.
    if sqlstate[:2] in ("08", "58", "XX", "40") and sqlstate not in _PASSING_STATES:
        return Failed(message, Outlook.DOUBTFUL, sqlstate=sqlstate, hint=hint, lost=True)
    outlook = Outlook.PASSING if sqlstate in _PASSING_STATES else Outlook.LASTING
    # A read-only session stays so; another connection may find the new primary.
    return Failed(message, outlook, sqlstate=sqlstate, hint=hint, lost=sqlstate == "25006")
