"""PEP 249's exceptions, and the mapping from the engine's errors.

Promise: every error that leaves this package is one of these, with `sqlstate`, and with `position`, `detail` and `hint`
where there are any. The class follows from the SQLSTATE, as in psycopg.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from mzsql.expr.engines import shortage
from mzsql.repr.errors import DataError as DataException
from mzsql.repr.errors import SqlError, internal_error


class Warning(Exception):  # noqa: A001  PEP 249's name
    """An important message that is not an error."""


class Error(Exception):
    """Any error of this package.

    Attributes:
        sqlstate: PostgreSQL's five-character code.
        position: 1-based character position in the statement, where its text is at fault.
        detail, hint: further facts, and what to do.
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
    """Wrong use of this package, such as of a closed cursor."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value that cannot be computed or stored."""


class OperationalError(DatabaseError):
    """An error of the operation instead of the statement: a timeout, a conflict, a failing store."""


class IntegrityError(DatabaseError):
    """A violated constraint."""


class InternalError(DatabaseError):
    """A bug inside mzsql."""


class ProgrammingError(DatabaseError):
    """A wrong statement or argument."""


class NotSupportedError(DatabaseError):
    """Something that mzsql does not support."""


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
    """The PEP 249 exception for an error of the engine."""
    cls = _CLASSES.get(error.sqlstate[:2], OperationalError)
    if error.sqlstate == "22023" and not isinstance(error, DataException):
        # A wrong option is a fault of the statement; a wrong argument of a function is a fault of the data.
        cls = ProgrammingError
    return cls(
        str(error),
        sqlstate=error.sqlstate,
        position=error.position,
        detail=error.detail,
        hint=error.hint,
    )


class _UserErrors:
    """See `user_errors`. A class, as each statement passes through it, and a generator costs three times as much."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is None or isinstance(error, (Error, Warning)):
            return
        if isinstance(error, SqlError):
            raise from_sql(error) from error.__cause__
        if isinstance(error, Exception):  # whatever it is: nobody expected it
            raise from_sql(shortage(error) or internal_error(error)) from error


_USER_ERRORS = _UserErrors()


def user_errors() -> AbstractContextManager[None]:
    """Turn the engine's errors in the block into PEP 249's; any other exception is a bug of mzsql and becomes an
    `InternalError`.

    Raises:
        Error: PEP 249's class for the engine's error, with the same message, detail, hint and position.
        InternalError: the block raised anything else, and the machine lacks neither memory nor disk space.
    """
    return _USER_ERRORS
