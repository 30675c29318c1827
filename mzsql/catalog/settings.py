"""The variables of a session: what there is, what each may hold, how it is shown.

Promise: names and defaults are Materialize's; what a variable cannot hold is refused with PostgreSQL's words, and what it can is kept in
one spelling (``60000`` is shown as ``1 min``, ``yes`` as ``on``). Pure: nothing here knows of a session.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

import msgspec

from mzsql.repr.errors import InvalidParameter, UndefinedObject

Check = Callable[[str, str], str]
"""From a variable's name and a text to the value as it is kept; raises InvalidParameter."""

_UNITS: Mapping[str, Decimal] = {
    "us": Decimal("0.001"),
    "ms": Decimal(1),
    "s": Decimal(1000),
    "min": Decimal(60_000),
    "h": Decimal(3_600_000),
    "d": Decimal(86_400_000),
}
_MOST_MS = 2**31 - 1
_SIZES: Mapping[str, int] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_QUANTITY = re.compile(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([a-zA-Z]*)\s*")


def _invalid(name: str, text: str, hint: str | None = None) -> InvalidParameter:
    return InvalidParameter(f'invalid value for parameter "{name}": "{text}"', hint=hint)


@functools.lru_cache(256)
def milliseconds(text: str, name: str) -> int:
    """A duration such as ``500``, ``500 ms``, ``10s`` or ``1 min`` in milliseconds, which a bare number is.

    Raises:
        InvalidParameter: it is none, or out of range.
    """
    match = _QUANTITY.fullmatch(text)
    hint = 'Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".'
    if match is None or match[2] not in ("", *_UNITS):
        raise _invalid(name, text, hint if match is not None else None)
    try:
        value = int((Decimal(match[1]) * _UNITS[match[2] or "ms"]).to_integral_value())
    except InvalidOperation:
        raise _invalid(name, text) from None
    if not 0 <= value <= _MOST_MS:
        raise InvalidParameter(
            f'{value} ms is outside the valid range for parameter "{name}" (0 ms .. {_MOST_MS} ms)'
        )
    return value


def _duration(name: str, text: str) -> str:
    value = milliseconds(text, name)
    if value == 0:
        return "0"
    for unit in ("d", "h", "min", "s"):
        size = int(_UNITS[unit])
        if value % size == 0:
            return f"{value // size} {unit}"
    return f"{value} ms"


def _boolean(name: str, text: str) -> str:
    # As PostgreSQL, every unambiguous beginning of a word will do.
    word = text.strip().lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return "on"
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("of", "off", "0")):
        return "off"
    raise InvalidParameter(f'parameter "{name}" requires a Boolean value')


def _integer(least: int, most: int) -> Check:
    def check(name: str, text: str) -> str:
        try:
            value = int(text)
        except ValueError:
            raise _invalid(name, text) from None
        if not least <= value <= most:
            raise InvalidParameter(
                f'{value} is outside the valid range for parameter "{name}" ({least} .. {most})'
            )
        return str(value)

    return check


@functools.lru_cache(256)
def size_in_bytes(text: str, name: str) -> int:
    """A size such as ``8B`` or ``1GB`` in bytes; a bare number is bytes. InvalidParameter where it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in ("", *_SIZES):
        hint = 'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
        raise _invalid(name, text, hint)
    value = int(Decimal(match[1]) * _SIZES[match[2] or "B"])
    if value < 0:
        raise _invalid(name, text)
    return value


def _size(name: str, text: str) -> str:
    value = size_in_bytes(text, name)
    for unit in ("TB", "GB", "MB", "kB"):
        if value and value % _SIZES[unit] == 0:
            return f"{value // _SIZES[unit]}{unit}"
    return f"{value}B"


def shown_size(size: int) -> str:
    """A size for a person, in decimal units: ``8 B``, ``1048.6 KB``."""
    if size < 1000:
        return f"{size} B"
    value, unit = size / 1000, "KB"
    for larger in ("MB", "GB", "TB"):
        if value < 2000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def _one_of(*values: str, keeps: str | None = None) -> Check:
    """One of ``values`` in any case; kept as the list spells it, or as ``keeps``."""
    by_lower = {value.lower(): value for value in values}

    def check(name: str, text: str) -> str:
        found = by_lower.get(" ".join(text.split()).lower())
        if found is None:
            raise _invalid(name, text, f"Available values: {', '.join(values)}.")
        return found if keeps is None else keeps

    return check


def _text(name: str, text: str) -> str:
    del name
    return text


_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_ELEMENT = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,"]*))\s*(?:,|$)')


def path_element(name: str) -> str:
    """A schema as it stands in a search path: in quotes where it is no plain word."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@functools.lru_cache(64)
def path_of(text: str) -> tuple[str, ...]:
    """The schemas of a search path as `path_element` writes them."""
    found: list[str] = []
    for quoted, plain in _ELEMENT.findall(text):
        name = quoted.replace('""', '"') or plain.strip()
        if name:
            found.append(name)
    return tuple(found)


class Variable(msgspec.Struct, frozen=True):
    """A variable.

    Attributes:
        default: its value where it was not set.
        check: what it may hold.
        read_only: whether it can be set at all.
    """

    default: str
    check: Check = _text
    read_only: bool = False


ISOLATIONS = (
    "read uncommitted",
    "read committed",
    "repeatable read",
    "serializable",
    "strong session serializable",
    "strict serializable",
)
_SEVERITIES = ("debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice")

VARIABLES: Mapping[str, Variable] = {
    "application_name": Variable(""),
    "auto_route_catalog_queries": Variable("on", _boolean),
    "client_encoding": Variable("UTF8", _one_of("UTF8", "UTF-8", "unicode", keeps="UTF8")),
    "client_min_messages": Variable("notice", _one_of(*_SEVERITIES, "warning", "error")),
    "cluster": Variable("quickstart"),
    "cluster_replica": Variable(""),
    "database": Variable("materialize"),
    "datestyle": Variable("ISO, MDY", _one_of("ISO, MDY", "ISO", "MDY", keeps="ISO, MDY")),
    "emit_timestamp_notice": Variable("off", _boolean),
    "emit_trace_id_notice": Variable("off", _boolean),
    "enable_session_cardinality_estimates": Variable("off", _boolean),
    "extra_float_digits": Variable("3", _integer(-15, 3)),
    "idle_in_transaction_session_timeout": Variable("2 min", _duration),
    "integer_datetimes": Variable("on", _boolean, read_only=True),
    "intervalstyle": Variable("postgres", _one_of("postgres")),
    "is_superuser": Variable("on", _boolean, read_only=True),
    "max_identifier_length": Variable("255", _integer(1, 65535), read_only=True),
    "max_query_result_size": Variable("1GB", _size),
    "real_time_recency": Variable("off", _boolean),
    "search_path": Variable("public"),
    "server_version": Variable("9.5.0", read_only=True),
    "server_version_num": Variable("90500", read_only=True),
    "sql_safe_updates": Variable("off", _boolean),
    "standard_conforming_strings": Variable("on", _one_of("on", "true", "1", keeps="on")),
    "statement_timeout": Variable("1 min", _duration),
    "timezone": Variable("UTC", _one_of("UTC", "+00:00", "GMT", "Etc/UTC", keeps="UTC")),
    "transaction_isolation": Variable("strict serializable", _one_of(*ISOLATIONS)),
    "welcome_message": Variable("on", _boolean),
}


NO_EFFECT = frozenset(
    {
        "cluster_replica",
        "emit_timestamp_notice",
        "emit_trace_id_notice",
        "extra_float_digits",
        "real_time_recency",
        "sql_safe_updates",
        "welcome_message",
    }
)
"""Variables that clients of Materialize and PostgreSQL set, and that nothing here asks for: whoever changes one is told."""


def variable(name: str) -> Variable:
    """A variable by its name; UndefinedObject where there is none of that name."""
    found = VARIABLES.get(name)
    if found is None:
        raise UndefinedObject(f'unrecognized configuration parameter "{name}"')
    return found


def value_for(name: str, values: tuple[str, ...]) -> str:
    """What a variable holds once it is set to ``values``.

    Raises:
        UndefinedObject: there is no such variable.
        InvalidParameter: it cannot be set, or not to that.
    """
    found = variable(name)
    if found.read_only:
        raise InvalidParameter(f'parameter "{name}" cannot be changed', sqlstate="55P02")
    if len(values) != 1 and name not in ("search_path", "datestyle"):
        raise InvalidParameter(f"SET {name} takes only one argument")
    return found.check(name, ", ".join(values))
