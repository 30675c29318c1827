"""``$1`` in prepared statements: inferring the types, and substituting the values.

Promise: a parameter without a declared type gets it from its first use, as an untyped literal does, and as PostgreSQL
infers it. A value is substituted as one cast expression in parentheses, so it cannot be read as anything else. The
statement is planned again for each EXECUTE, so its names mean what the catalog then says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from mzsql.frontend.grammar.number_tokens import is_parameter
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.repr.errors import DataError, SqlError, SqlSyntaxError
from mzsql.repr.types import SqlType, type_name

#: The prefix of the literal that stands for a parameter of unknown type; no literal of a user can hold U+0000.
_MARK = "\0$"


class _Parameters:
    """The parameters of the statement that is being planned."""

    def __init__(self, declared: Sequence[SqlType]) -> None:
        self.types: dict[int, SqlType | None] = dict(enumerate(declared, start=1))


_planning: ContextVar[_Parameters | None] = ContextVar("mzsql_parameters", default=None)


def placeholder(number: str, position: int | None) -> SqlType | str:
    """What stands for ``$number`` while a statement is prepared: its type, or the text of a literal of unknown type.

    Raises:
        DataError: no statement is being prepared (42P02).
    """
    active = _planning.get()
    if active is None or not number.isdigit() or int(number) < 1:
        raise DataError(
            f"there is no parameter ${number}"
            if number.isdigit()
            else "there is no parameter for this placeholder",
            position=position,
            hint="Parameters are written %s or %(name)s, and $1 in PREPARE.",
            sqlstate="42P02",
        )
    found = active.types.setdefault(int(number), None)
    return f"{_MARK}{number}" if found is None else found


def undecided(text: object) -> bool:
    """Whether an untyped literal's text stands for a parameter, and so has no value yet."""
    return isinstance(text, str) and text.startswith(_MARK)


def decided(text: object, typ: SqlType) -> None:
    """An untyped literal became ``typ``: record that as the type of the parameter, if it stands for one."""
    active = _planning.get()
    if active is not None and isinstance(text, str) and undecided(text):
        number = int(text.removeprefix(_MARK))
        if active.types.get(number) is None:
            active.types[number] = typ


@contextmanager
def inferring(declared: Sequence[SqlType]) -> Iterator[dict[int, SqlType | None]]:
    """While the block plans a statement, collect its parameters' types by number in the result."""
    parameters = _Parameters(declared)
    token = _planning.set(parameters)
    try:
        yield parameters.types
    finally:
        _planning.reset(token)


def all_types(found: Mapping[int, SqlType | None]) -> tuple[SqlType, ...]:
    """The types of ``$1`` up to the highest number.

    Raises:
        SqlError: a type could not be determined (42P18).
    """
    result: list[SqlType] = []
    for number in range(1, max(found, default=0) + 1):
        typ = found.get(number)
        if typ is None:
            raise SqlError(
                f"could not determine data type of parameter ${number}",
                hint=f"Declare it: PREPARE … ({'…, ' * (number - 1)}integer) AS …",
                sqlstate="42P18",
            )
        result.append(typ)
    return tuple(result)


def substitute(text: str, types: Sequence[SqlType], arguments: Sequence[str]) -> str:
    """The statement with each ``$n`` replaced by its argument, cast to its type.

    Raises:
        SqlSyntaxError: letters follow a parameter's number.
    """
    pieces: list[str] = []
    at = 0
    tokens = tokenize(text)
    for token, following in itertools.pairwise(tokens):
        if is_parameter(token, following):
            if not following.text.isdigit():
                raise SqlSyntaxError(
                    f'trailing junk after parameter at or near "${following.text}"',
                    position=token.start + 1,
                )
            n = int(following.text) - 1
            pieces.append(text[at : token.start])
            pieces.append(f"CAST(({arguments[n]}) AS {type_name(types[n])})")
            at = following.end + 1
    return "".join([*pieces, text[at:]])
