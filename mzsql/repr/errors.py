"""The errors a person may meet, each with a SQLSTATE, and where known a position, a detail and a hint.

Promise: whatever a user of SQL does wrong ends as a subclass of `SqlError`; whatever is a bug of ours ends as `InternalError`. The
PEP 249 surface maps the classes by SQLSTATE class, so a lower room need not know PEP 249. Messages use PostgreSQL's or
Materialize's wording where one exists.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class SqlError(Exception):
    """An error with a message for a person.

    Args:
        message: what is wrong, PostgreSQL's wording where one exists; no trailing period.
        position: 1-based character position in the statement's text, where the text is at fault.
        detail: facts that help, one sentence or more.
        hint: what to do about it.
    """

    sqlstate: str = "XX000"

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.detail = detail
        self.hint = hint
        if sqlstate is not None:
            self.sqlstate = sqlstate

    def __str__(self) -> str:
        return "\n".join(self._parts())

    def _parts(self) -> list[str]:
        parts = [self.message]
        if self.detail:
            parts.append(f"DETAIL: {self.detail}")
        if self.hint:
            parts.append(f"HINT: {self.hint}")
        return parts

    def on_one_line(self) -> str:
        """As `str`, for where the first line alone is shown; line breaks within become spaces."""
        *parts, last = (" ".join(part.split()) for part in self._parts())
        ended = (part if part.endswith((".", "?", "!")) else f"{part}." for part in parts)
        return " ".join([*ended, last])


class SqlSyntaxError(SqlError):
    """The text is not a statement of the dialect."""

    sqlstate = "42601"


class UndefinedTable(SqlError):
    """A relation that does not exist: ``unknown catalog item 'x'``."""

    sqlstate = "42P01"


class UndefinedColumn(SqlError):
    """``column "x" does not exist``."""

    sqlstate = "42703"


class UndefinedFunction(SqlError):
    """``function f(integer) does not exist`` or ``operator does not exist: …``."""

    sqlstate = "42883"


class UndefinedObject(SqlError):
    """A type, schema, cluster or the like that does not exist."""

    sqlstate = "42704"


class AmbiguousColumn(SqlError):
    """``column reference "x" is ambiguous``."""

    sqlstate = "42702"


class DuplicateObject(SqlError):
    """A name that is taken."""

    sqlstate = "42710"


class DatatypeMismatch(SqlError):
    """Types that do not fit together."""

    sqlstate = "42804"


class GroupingError(SqlError):
    """``column "t.a" must appear in the GROUP BY clause or be used in an aggregate function``."""

    sqlstate = "42803"


class InvalidTextRepresentation(SqlError):
    """``invalid input syntax for type integer: …``."""

    sqlstate = "22P02"


class DataError(SqlError):
    """A value that cannot be computed or stored: division by zero, overflow, a broken row of a file."""

    sqlstate = "22000"


class NotNullViolation(SqlError):
    """``null value in column "x" violates not-null constraint``."""

    sqlstate = "23502"


class DependentObjects(SqlError):
    """``cannot drop … because other objects depend on it``."""

    sqlstate = "2BP01"


class InvalidParameter(SqlError):
    """A parameter, option or setting with a value it cannot have."""

    sqlstate = "22023"


class Unsupported(SqlError):
    """Something of the dialect that is not supported (yet), said plainly."""

    sqlstate = "0A000"


class ObjectInUse(SqlError):
    """An object that cannot be changed in the state it is in."""

    sqlstate = "55006"


class NotReadable(SqlError):
    """A read at a time that is not (or no longer) available, or a timeout while waiting for it."""

    sqlstate = "57014"


class QueryCanceled(SqlError):
    """A statement that ended before its time: cancelled from another thread, or at its ``statement_timeout``."""

    sqlstate = "57014"


class CommitOutcomeUnknown(SqlError):
    """The statement ended while its commit was under way: what it wrote may be there, now or a little later, or not at all."""

    sqlstate = "40003"


class ResultTooLarge(SqlError):
    """``result exceeds max size of …``."""

    sqlstate = "53200"


class OutOfMemory(SqlError):
    """A statement needs more memory than there is."""

    sqlstate = "53200"


class NoThread(SqlError):
    """The machine has no memory for another thread, or lets the process have no more."""

    sqlstate = "53000"


class IdleInTransactionTimeout(SqlError):
    """``terminating connection due to idle-in-transaction timeout``."""

    sqlstate = "25P03"


class TransactionError(SqlError):
    """A statement that does not fit the transaction it stands in, or a conflict."""

    sqlstate = "25000"


class EnvironmentRefused(SqlError):
    """A directory or location that is not an mzsql environment, or one this version cannot open."""

    sqlstate = "58000"


class Fenced(SqlError):
    """A newer deployment took over; says by whom."""

    sqlstate = "57P01"


class InternalError(SqlError):
    """A bug inside mzsql. Never the user's fault."""

    sqlstate = "XX000"


class ThreadFailed(InternalError):
    """A thread that this process needs for what was asked has ended for good."""


#: What Python says then.
_NO_THREAD = "can't start new thread"


def told(failure: BaseException) -> str:
    """What to say of a failure; one that is not meant for a person is a bug of ours."""
    if isinstance(failure, SqlError):
        return str(failure)
    return f"internal error: {type(failure).__name__}: {failure}"


def internal_error(bug: BaseException) -> InternalError:
    """What a person gets of an exception that nobody expected."""
    return InternalError(
        f"internal error: {type(bug).__name__}: {bug}",
        hint="This is a bug in mzsql; please report it with the statement.",
    )


def out_of_memory() -> OutOfMemory:
    """What a person gets where there is no memory left."""
    return OutOfMemory("out of memory", hint="Ask for less at once: fewer rows, or shorter values.")


def lacking(failure: BaseException) -> SqlError | None:
    """What a person gets where the machine had nothing left to give, be it memory or a thread; None of any other failure."""
    if isinstance(failure, MemoryError):
        return out_of_memory()
    if isinstance(failure, OSError) and failure.errno == errno.ENOMEM:
        return out_of_memory()
    if isinstance(failure, RuntimeError) and _NO_THREAD in str(failure):
        return no_thread("a thread")
    return None


def no_thread(name: str) -> NoThread:
    """What a person gets where a thread cannot be started."""
    return NoThread(
        f"{name} could not be started: there is no memory for it, or this process may have no more threads",
        hint="Close connections, end other programs, or let the process have more memory and threads (ulimit -v, -u).",
    )


def alike(name: str, names: Iterable[str]) -> str | None:
    """The hint ``Perhaps you meant "…"`` with the closest of `names` to `name`, which does not exist; None if none is close."""
    near = nearest(name, names)
    return None if near is None else f'Perhaps you meant "{near}".'


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The closest of `names` to `name`; None if none is close."""
    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.6)), None)
