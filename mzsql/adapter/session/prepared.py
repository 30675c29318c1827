"""PREPARE, EXECUTE and DEALLOCATE: a session's prepared statements.

Promise: a prepared statement is a text and the types of its parameters. EXECUTE plans it anew, so its names mean what
the catalog says at that time; each argument is one expression, cast to its parameter's type.
"""

from __future__ import annotations

import weakref

import msgspec

from mzsql.adapter.session.session import Session
from mzsql.frontend.plan import cursor_plans
from mzsql.frontend.scalar.placeholders import substitute
from mzsql.repr.errors import DuplicateObject, SqlError, SqlSyntaxError
from mzsql.repr.types import SqlType


class Prepared(msgspec.Struct, frozen=True):
    """A statement's text with ``$1``, ``$2``, …, and the types of these parameters."""

    text: str
    types: tuple[SqlType, ...]


class PreparedStatements:
    """The prepared statements of the sessions of one process."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Session, dict[str, Prepared]] = (
            weakref.WeakKeyDictionary()
        )

    def _of(self, session: Session) -> dict[str, Prepared]:
        return self._kept.setdefault(session, {})

    def prepare(self, session: Session, plan: cursor_plans.PreparePlan) -> None:
        """Store a statement.

        Raises:
            DuplicateObject: the session has one of this name (42P05).
        """
        kept = self._of(session)
        if plan.name in kept:
            raise DuplicateObject(
                f'prepared statement "{plan.name}" already exists',
                hint=f"DEALLOCATE {plan.name} first, or use another name.",
                sqlstate="42P05",
            )
        kept[plan.name] = Prepared(plan.text, plan.types)

    def text(self, session: Session, plan: cursor_plans.ExecutePlan) -> str:
        """The statement that EXECUTE runs, with the arguments substituted.

        Raises:
            SqlError: there is none of this name (26000).
            SqlSyntaxError: too few or too many arguments.
        """
        found = self._named(session, plan.name)
        if len(plan.arguments) != len(found.types):
            raise SqlSyntaxError(
                f'wrong number of parameters for prepared statement "{plan.name}"',
                detail=f"Expected {len(found.types)} parameters but got {len(plan.arguments)}.",
            )
        return substitute(found.text, found.types, plan.arguments)

    def _named(self, session: Session, name: str) -> Prepared:
        found = self._of(session).get(name)
        if found is None:
            raise SqlError(f'prepared statement "{name}" does not exist', sqlstate="26000")
        return found

    def deallocate(self, session: Session, name: str | None) -> None:
        """Forget one statement; None: all of the session's."""
        if name is None:
            self._of(session).clear()
        else:
            self._named(session, name)
            del self._of(session)[name]
