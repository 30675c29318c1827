"""Errors of expressions: as data they are messages alone; what leaves for a person has PostgreSQL's SQLSTATE as well.

Promise: the SQLSTATE follows from the message, whichever engine or fold it comes from; one that has none in PostgreSQL is a data exception.
"""

from __future__ import annotations

import re

from mzsql.repr.errors import DataError

#: Arguments that a function does not take.
_OF_ARGUMENTS = (
    (
        r"^number of elements to trim must be |^index -?\d+ out of valid range, |^cannot concatenate incompatible arrays$"
        r"|^array must have even number of elements$|^number of array elements ",
        "2202E",
    ),
    (r"^path element at position \d+ is not an integer: ", "22P02"),
    (
        r"^cannot (?:set path in|delete path in|delete from) |^cannot replace existing key$|^key cannot be null$"
        r"|^cannot cast jsonb \w+ to type |^field position must be |^invalid (?:time zone|encoding name|hash algorithm) '"
        r"|^invalid (?:hexadecimal|symbol|base64|size)|^string is not a valid identifier: |^invalid value for parameter "
        r"|^new bit must be 0 or 1$|^step size cannot equal zero$|^requested character not valid for encoding: ",
        "22023",
    ),
    (
        r"^factorial of a negative number |^function (?:a?(?:sin|cos|tan)h?|cot) is defined for |^percentile value ",
        "22003",
    ),
    (r"^count must be greater than zero$|^lower bound cannot equal upper bound$", "2201G"),
    (r"^argument of ntile", "22014"),
    (r"^argument of nth_value", "22016"),
    (r"^null values cannot be formatted as an SQL identifier$", "22004"),
    (r"^null character not permitted$|^array size exceeds the maximum allowed ", "54000"),
    (r'^hour ".*" is invalid for the 12-hour clock$|^invalid value ".*" for "', "22007"),
    (r"^invalid range bound flags$", "42601"),
    (r"^unrecognized configuration parameter ", "42704"),
)
#: Names that are looked up while rows are computed, as those of ``has_table_privilege``.
_OF_NAMES = (
    (r'^column ".*" (?:of relation ".*" )?does not exist$', "42703"),
    (r'^relation ".*" does not exist$', "42P01"),
    (r'^function ".*" does not exist$', "42883"),
    (r'^schema ".*" does not exist$', "3F000"),
    (r'^database ".*" does not exist$', "3D000"),
    (r'^(?:role|type|cluster|secret|connection) ".*" does not exist$', "42704"),
    (r"^unrecognized (?:role )?privilege type: ", "22023"),
)
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
        (
            r"^invalid input syntax for type (?:smallint|integer|bigint): number too (?:large|small)",
            "22003",
        ),
        (r"^invalid input syntax for type bytea: invalid hexadecimal", "22023"),
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
        (
            r"^(?:timestamp|date|interval|time)\b.* out of range|^stride must be greater than zero$",
            "22008",
        ),
        (r"^timestamps cannot be binned into intervals containing months or years$", "0A000"),
        *_OF_ARGUMENTS,
        *_OF_NAMES,
        (r"\bout of range\b|^numeric field overflow$", "22003"),
    )
)


def failed(message: str, *, detail: str | None = None, otherwise: str | None = None) -> DataError:
    """The error that an expression ends with; its SQLSTATE is ``otherwise`` where the message does not say."""
    states = (state for pattern, state in _STATES if pattern.search(message))
    return DataError(message, detail=detail, sqlstate=next(states, otherwise))
