"""Errors of expressions: as data they are messages alone; what leaves for a person has PostgreSQL's SQLSTATE as well.

Promise: the SQLSTATE follows from the message, whichever engine or fold it comes from; one that has none in PostgreSQL is a data exception.
"""

from __future__ import annotations

import re

from mzsql.repr.errors import DataError

_STATES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), state)
    for pattern, state in (
        (r"^division by zero$", "22012"),
        (r"^requested length too large$", "54000"),
        (
            r"^invalid input syntax for type (?:date|time).*: (?:[A-Z]+ must be \[|YEAR cannot|invalid or out-of-range date)",
            "22008",
        ),
        (r"^date/time field value out of range", "22008"),
        (r"^invalid input syntax for type (?:date|time|timestamp|interval)\b", "22007"),
        (
            r'^invalid input syntax for type array: an array of several dimensions .*?: "\s*\{\s*\{',
            "0A000",
        ),
        (r"^invalid input syntax for type ", "22P02"),
        (r"^value too long for type ", "22001"),
        (r"^more than one record produced in subquery$", "21000"),
        (r"^negative substring length not allowed$", "22011"),
        (r"^invalid regular expression", "2201B"),
        (r"^function (?:ln|log|log10) is not defined for ", "2201E"),
        (
            r"^cannot take square root |^function pow cannot return complex|^zero raised to a neg",
            "2201F",
        ),
        (r"^unterminated escape sequence in LIKE$|^invalid escape string$", "22025"),
        (r"^invalid byte sequence ", "22021"),
        (r"^(?:timestamp|date|interval|time)\b.* out of range", "22008"),
        (r"\bout of range\b|^numeric field overflow$", "22003"),
    )
)


def failed(message: str, *, detail: str | None = None, otherwise: str | None = None) -> DataError:
    """The error that an expression ends with; its SQLSTATE is ``otherwise`` where the message does not say."""
    states = (state for pattern, state in _STATES if pattern.search(message))
    return DataError(message, detail=detail, sqlstate=next(states, otherwise))
