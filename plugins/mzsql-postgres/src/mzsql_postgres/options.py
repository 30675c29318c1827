"""Parses a URL into what a connection needs.

Promise: a URL may have everything that libpq understands, which is passed on unchanged (environment variables, password
file and service file included); an option that neither libpq nor this plugin knows is an `InvalidUrl`. No text made
here contains a password. Connections must be to a server that accepts writes: a standby returns the past, and every
read of a Consensus or an oracle must be of the present.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

import msgspec

from mzsql.location import InvalidUrl, shown_url, url_options

if TYPE_CHECKING:
    import psycopg

SCHEMES = ("postgres", "postgresql", "cockroach")
FORM = "postgres://user:password@host:port/database?schema=…"
DEFAULT_SCHEMA = "mzsql"

_COCKROACH_PORT = "26257"
_MAX_IDENTIFIER_BYTES = 63
_PRIMARY = ("read-write", "primary")
_DEFAULTS = {
    "fallback_application_name": "mzsql",
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",
}
_REFUSED = {
    "client_encoding",
    "replication",
    "dbname",
    "user",
    "password",
    "fallback_application_name",
}


class Limits(msgspec.Struct, frozen=True):
    """The plugin's own options; times in seconds.

    Args:
        timeout: a call begins no attempt after this; the last one may take up to ``statement_timeout`` longer.
        statement_timeout: the limit of a statement on the server.
        lock_timeout: the limit of an attempt's wait for a row or table locked by others.
        pool_max_size: the maximum number of connections of a handle, without the one that listens.
        pool_timeout: the limit of the wait for one of them.
        pool_max_lifetime: the age at which a connection is replaced, less up to a tenth.
        pool_max_idle: the time after which an idle connection is closed.
    """

    timeout: float = 30.0
    statement_timeout: float = 15.0
    lock_timeout: float = 10.0
    pool_max_size: int = 8
    pool_timeout: float = 30.0
    pool_max_lifetime: float = 1800.0
    pool_max_idle: float = 300.0


_OWN = ("schema", *Limits.__struct_fields__)


class Options:
    """The server, and how to deal with it. Its ``repr`` has no secrets."""

    def __init__(
        self, place: str, schema: str, limits: Limits, parameters: Mapping[str, Any]
    ) -> None:
        self.place = place
        self.schema = schema
        self.limits = limits
        self._parameters = dict(parameters)

    def __repr__(self) -> str:
        return f"Options({self.place})"

    @property
    def connect_timeout(self) -> float:
        """The seconds for one attempt to connect to one host."""
        return float(self._parameters["connect_timeout"])

    def connect(self, seconds: float) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection in autocommit mode, or psycopg's error, within ``seconds`` or less if the URL says so."""
        import psycopg  # noqa: PLC0415 -- it takes a while, and a process may open no such store

        parameters = self._parameters | {
            "connect_timeout": max(1, math.ceil(min(seconds, self.connect_timeout)))
        }
        return psycopg.connect(**parameters, autocommit=True)

    def without_secrets(self, text: str) -> str:
        """``text`` from libpq or the server, with passwords removed."""
        for name in ("password", "sslpassword"):
            secret = self._parameters.get(name)
            if secret:
                text = text.replace(str(secret), "***")
        return text


def read_options(url: SplitResult) -> Options:
    """The options in ``url``, with defaults.

    Raises:
        InvalidUrl: libpq cannot parse it, an option is unknown or out of range, or it asks for a standby.
    """
    from psycopg import pq  # noqa: PLC0415 -- as in Options.connect

    place = shown_url(url)
    libpq = {default.keyword.decode() for default in pq.Conninfo.get_defaults()} - _REFUSED
    given = url_options(url, libpq | set(_OWN))
    parameters = _located(url, place) | {k: v for k, v in given.items() if k not in _OWN}
    if url.scheme == "cockroach":
        parameters.setdefault("port", _COCKROACH_PORT)
    parameters = _DEFAULTS | parameters
    if parameters["target_session_attrs"] not in _PRIMARY:
        raise InvalidUrl(
            f"{place}: target_session_attrs must be {' or '.join(_PRIMARY)}",
            hint="A standby lags behind, and what is read from it could be the past.",
        )
    if not parameters["connect_timeout"].isdecimal() or not int(parameters["connect_timeout"]):
        raise InvalidUrl(f"{place}: connect_timeout must be a number of seconds, 1 or more")
    return Options(place, _schema(given, place), _limits(given, place), parameters)


def _located(url: SplitResult, place: str) -> dict[str, Any]:
    """The part before the ``?``, as libpq parses it."""
    import psycopg.conninfo  # noqa: PLC0415 -- as in Options.connect

    try:
        return psycopg.conninfo.conninfo_to_dict(f"postgresql://{url.netloc}{url.path}")
    except psycopg.Error as failure:
        # The text after the colon quotes the URL with its password.
        reason = str(failure).partition(":")[0].partition('"')[0].strip()
    # Outside the except block, since psycopg's error would become the context.
    raise InvalidUrl(
        f"{place}: {reason}",
        hint=f"Write {FORM}, with %25, %40, %2F, %3A for % @ / : in a name or password.",
    )


def _schema(given: Mapping[str, str], place: str) -> str:
    schema = given.get("schema", DEFAULT_SCHEMA)
    size = len(schema.encode(errors="replace"))
    if not 0 < size <= _MAX_IDENTIFIER_BYTES or "\0" in schema:
        raise InvalidUrl(f"{place}: a schema's name has 1 to {_MAX_IDENTIFIER_BYTES} bytes")
    if schema.startswith("pg_") or schema == "information_schema":
        raise InvalidUrl(f"{place}: the schema {schema!r} is PostgreSQL's own")
    return schema


def _limits(given: Mapping[str, str], place: str) -> Limits:
    values: dict[str, float | int] = {}
    for name in Limits.__struct_fields__:
        if name not in given:
            continue
        try:
            value = int(given[name]) if name == "pool_max_size" else float(given[name])
        except ValueError:
            raise InvalidUrl(f"{place}: {name} is no number: {given[name]!r}") from None
        if not 0 < value <= 1_000_000:
            raise InvalidUrl(f"{place}: {name} must be above 0 and at most 1000000")
        values[name] = value
    return Limits(**values)  # type: ignore[arg-type]
