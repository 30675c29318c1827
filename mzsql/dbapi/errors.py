"""PEP 249's exceptions, and which of them an error of the engine becomes.

Promise: every error that leaves this package is one of these; it carries `sqlstate`, and `position`, `detail`, `hint` where there are any.
The class follows from the SQLSTATE, as in psycopg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mzsql.expr.engines import shortage
from mzsql.repr.errors import DataError as DataException
from mzsql.repr.errors import SqlError, internal_error


class Warning(Exception):  # noqa: A001  PEP 249's name
    """Something important that is no error."""


class Error(Exception):
    """Any error of this package.

    Attributes:
        sqlstate: PostgreSQL's five-character code.
        position: 1-based character position in the statement, where its text is at fault.
        detail, hint: facts that help, and what to do.
    """

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.position = position
        self.detail = detail
        self.hint = hint


class InterfaceError(Error):
    """Wrong use of this package, such as a closed cursor."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value that cannot be computed or stored."""


class OperationalError(DatabaseError):
    """Something about the operation rather than the statement: a timeout, a conflict, a store that fails."""


class IntegrityError(DatabaseError):
    """A constraint that would be violated."""


class InternalError(DatabaseError):
    """A bug inside mzsql."""


class ProgrammingError(DatabaseError):
    """A statement that is wrong."""


class NotSupportedError(DatabaseError):
    """Something that is not supported."""


_CLASSES: dict[str, type[DatabaseError]] = {
    "0A": NotSupportedError,
    "21": DataError,
    "22": DataError,
    "23": IntegrityError,
    "2B": ProgrammingError,
    "3D": ProgrammingError,
    "3F": ProgrammingError,
    "42": ProgrammingError,
    "XX": InternalError,
}


def from_sql(error: SqlError) -> DatabaseError:
    """The exception that a user gets for an error of the engine."""
    cls = _CLASSES.get(error.sqlstate[:2], OperationalError)
    if error.sqlstate == "22023" and not isinstance(error, DataException):
        # An option of a statement is part of the statement; an argument of a function is data.
        cls = ProgrammingError
    return cls(
        str(error),
        sqlstate=error.sqlstate,
        position=error.position,
        detail=error.detail,
        hint=error.hint,
    )


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Errors of the engine leave as PEP 249's; what is none of them is a bug of ours, and leaves as an `InternalError`."""
    try:
        yield
    except SqlError as error:
        raise from_sql(error) from error.__cause__
    except (Error, Warning):
        raise
    except Exception as bug:  # whatever it is: nobody expected it
        raise from_sql(shortage(bug) or internal_error(bug)) from bug
