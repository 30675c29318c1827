"""The variables of sessions and of the system, in one table: names, allowed values, formatting, and whether they have
an effect.

Promise: names and defaults are Materialize's. A value that a variable cannot have is refused with PostgreSQL's message;
others are stored in one canonical form (``60000`` becomes ``1 min``, ``yes`` becomes ``on``). Pure functions: nothing
here knows a session.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import msgspec

from mzsql.oracle import IMPLEMENTATIONS
from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import InvalidParameter, UndefinedObject, alike
from mzsql.repr.version import VERSION
from mzsql.transform.features import OptimizerFeatures

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


_SPELLED = {"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}


def spelled(name: str) -> str:
    """A variable's name as it is shown, which may have capitals."""
    return _SPELLED.get(name, name)


def _invalid(name: str, text: str, hint: str | None = None) -> InvalidParameter:
    return InvalidParameter(f'invalid value for parameter "{spelled(name)}": "{text}"', hint=hint)


@functools.lru_cache(256)
def milliseconds(text: str, name: str, most: int = _MOST_MS) -> int:
    """A duration such as ``500``, ``500 ms``, ``10s`` or ``1 min`` in milliseconds; a bare number is in milliseconds.

    Args:
        text: the duration.
        name: the variable, for the error.
        most: the longest that is in range.

    Raises:
        InvalidParameter: it is no duration, or out of range.
    """
    match = _QUANTITY.fullmatch(text)
    hint = 'Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".'
    if match is None or match[2] not in ("", *_UNITS):
        raise _invalid(name, text, hint if match is not None else None)
    try:
        exact = Decimal(match[1]) * _UNITS[match[2] or "ms"]
        value = int(exact.to_integral_value()) if abs(exact) < 2**63 else -1
    except InvalidOperation:
        raise _invalid(name, text) from None
    if not 0 <= value <= most:
        said = f"{value} ms" if abs(exact) < 2**63 else text[:64]
        raise InvalidParameter(
            f'{said} is outside the valid range for parameter "{name}" (0 ms .. {most} ms)'
        )
    return value


@functools.lru_cache(256)
def size_in_bytes(text: str, name: str) -> int:
    """A size such as ``8B`` or ``1GB`` in bytes; a bare number is in bytes.

    Raises:
        InvalidParameter: it is no size.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in ("", *_SIZES):
        hint = 'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
        raise _invalid(name, text, hint)
    value = int(Decimal(match[1]) * _SIZES[match[2] or "B"])
    if value < 0:
        raise _invalid(name, text)
    return value


def shown_size(size: int) -> str:
    """A size for messages, in decimal units: ``8 B``, ``1048.6 KB``."""
    if size < 1000:
        return f"{size} B"
    value, unit = size / 1000, "KB"
    for larger in ("MB", "GB", "TB"):
        if value < 2000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_ELEMENT = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,"]*))\s*(?:,|$)')


def path_element(name: str) -> str:
    """A schema as written in a search path: quoted where it is not a plain lower-case word."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@functools.lru_cache(64)
def path_of(text: str) -> tuple[str, ...]:
    """The schemas of a search path whose elements `path_element` wrote."""
    found: list[str] = []
    for quoted, plain in _ELEMENT.findall(text):
        name = quoted.replace('""', '"') or plain.strip()
        if name:
            found.append(name)
    return tuple(found)


class Kind(msgspec.Struct, frozen=True):
    """The values that a variable may have; this one: any text.

    Attributes:
        vartype: PostgreSQL's name of the kind, in ``pg_settings``.
    """

    vartype: ClassVar[str] = "string"

    def kept(self, name: str, text: str) -> str:
        """The value in canonical form.

        Raises:
            InvalidParameter: the variable ``name`` cannot have it.
        """
        del name
        return text

    def shown(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """For ``pg_settings``: minimum, maximum, and the values where they are enumerated."""
        return None, None, ()


class Boolean(Kind, frozen=True):
    """Stored as ``on`` or ``off``."""

    vartype: ClassVar[str] = "bool"

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`.

        Raises:
            InvalidParameter: the text is no boolean, by PostgreSQL's spellings.
        """
        value = boolean_of(text)
        if value is None:
            raise InvalidParameter(f'parameter "{name}" requires a Boolean value')
        return "on" if value else "off"


class Integer(Kind, frozen=True):
    """An integer between two inclusive bounds."""

    vartype: ClassVar[str] = "integer"
    least: int
    most: int

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`.

        Raises:
            InvalidParameter: the text is no integer, or is outside of the variable's range.
        """
        try:
            value = int(text)
        except ValueError:
            raise _invalid(name, text) from None
        if not self.least <= value <= self.most:
            raise InvalidParameter(
                f'{value} is outside the valid range for parameter "{name}" ({self.least} .. {self.most})'
            )
        return str(value)

    def shown(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """As `Kind.shown`."""
        return str(self.least), str(self.most), ()


class Duration(Kind, frozen=True):
    """Stored in the largest unit that divides it."""

    vartype: ClassVar[str] = "integer"
    most: int = _MOST_MS

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`."""
        value = milliseconds(text, name, self.most)
        if value == 0:
            return "0"
        for unit in ("d", "h", "min", "s"):
            size = int(_UNITS[unit])
            if value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} ms"

    def shown(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """As `Kind.shown`, in milliseconds."""
        return "0", str(self.most), ()


class Size(Kind, frozen=True):
    """Stored in the largest unit of bytes that divides it."""

    vartype: ClassVar[str] = "integer"

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`."""
        value = size_in_bytes(text, name)
        for unit in ("TB", "GB", "MB", "kB"):
            if value and value % _SIZES[unit] == 0:
                return f"{value // _SIZES[unit]}{unit}"
        return f"{value}B"

    def shown(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """As `Kind.shown`, in bytes."""
        return "0", None, ()


class OneOf(Kind, frozen=True):
    """One of some words, case-insensitive; stored as listed, or as ``keeps``."""

    vartype: ClassVar[str] = "enum"
    values: tuple[str, ...]
    keeps: str | None = None

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`.

        Raises:
            InvalidParameter: the text is none of the variable's values.
        """
        by_lower = {value.lower(): value for value in self.values}
        found = by_lower.get(" ".join(text.split()).lower())
        if found is None:
            raise _invalid(name, text, f"Available values: {', '.join(self.values)}.")
        return found if self.keeps is None else self.keeps

    def shown(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """As `Kind.shown`."""
        return None, None, self.values


class AlwaysOn(OneOf, frozen=True):
    """A boolean that cannot be switched off."""

    def kept(self, name: str, text: str) -> str:
        """As `Kind.kept`."""
        return super().kept(name, "on" if boolean_of(text) else text)


class Variable(msgspec.Struct, frozen=True):
    """A variable.

    Attributes:
        default: its value where it was not set.
        kind: the values that it may have.
        read_only: whether it cannot be set.
        of_system: whether it is a system variable, set only by ALTER SYSTEM. For other variables ALTER SYSTEM sets new
            sessions' defaults.
        heeded: whether it has an effect here; setting one that has none gives a notice.
    """

    default: str
    kind: Kind = Kind()
    read_only: bool = False
    of_system: bool = False
    heeded: bool = True


ISOLATIONS = (
    "read uncommitted",
    "read committed",
    "repeatable read",
    "serializable",
    "strong session serializable",
    "strict serializable",
)
_SEVERITIES = ("debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice")

_OF_SESSIONS: Mapping[str, Variable] = {
    "application_name": Variable(""),
    "auto_route_catalog_queries": Variable("on", Boolean()),
    "client_encoding": Variable("UTF8", OneOf(("UTF8", "UTF-8", "unicode"), keeps="UTF8")),
    "client_min_messages": Variable(
        "notice",
        OneOf(
            (
                *_SEVERITIES,
                "warning",
                "error",
            )
        ),
    ),
    "cluster": Variable("quickstart"),
    "cluster_replica": Variable(""),
    "current_object_missing_warnings": Variable("on", Boolean(), heeded=False),
    "database": Variable("materialize"),
    "datestyle": Variable("ISO, MDY", OneOf(("ISO, MDY", "ISO", "MDY"), keeps="ISO, MDY")),
    "emit_introspection_query_notice": Variable("on", Boolean(), heeded=False),
    "emit_plan_insights_notice": Variable("off", Boolean(), heeded=False),
    "emit_timestamp_notice": Variable("off", Boolean(), heeded=False),
    "emit_trace_id_notice": Variable("off", Boolean(), heeded=False),
    "enable_session_cardinality_estimates": Variable("off", Boolean()),
    "enable_session_rbac_checks": Variable("off", Boolean(), heeded=False),
    "extra_float_digits": Variable("3", Integer(-15, 3), heeded=False),
    "idle_in_transaction_session_timeout": Variable("2 min", Duration()),
    "integer_datetimes": Variable("on", Boolean(), read_only=True),
    "intervalstyle": Variable("postgres", OneOf(("postgres",))),
    "is_superuser": Variable("on", Boolean(), read_only=True),
    "max_identifier_length": Variable("255", Integer(1, 65535), read_only=True),
    "max_query_result_size": Variable("1GB", Size()),
    "mz_version": Variable(f"v{VERSION}", read_only=True),
    "real_time_recency": Variable("off", Boolean(), heeded=False),
    "real_time_recency_timeout": Variable("10 s", Duration(), heeded=False),
    "search_path": Variable("public"),
    "server_version": Variable("9.5.0", read_only=True),
    "server_version_num": Variable("90500", read_only=True),
    "sql_safe_updates": Variable("off", Boolean(), heeded=False),
    "standard_conforming_strings": Variable("on", AlwaysOn(("on",))),
    "statement_timeout": Variable("1 min", Duration()),
    "timezone": Variable("UTC", OneOf(("UTC", "+00:00", "GMT", "Etc/UTC"), keeps="UTC")),
    "transaction_isolation": Variable("strict serializable", OneOf(ISOLATIONS)),
    "welcome_message": Variable("on", Boolean(), heeded=False),
}


def _switch(default: bool | int) -> Variable:
    if isinstance(default, bool):
        return Variable("on" if default else "off", Boolean(), of_system=True)
    return Variable(str(default), Integer(0, 2**31 - 1), of_system=True)


def _unlimited(default: str) -> Variable:
    """A limit that tools ask for, of what is not limited here."""
    return Variable(default, Integer(0, 2**31 - 1), of_system=True, heeded=False)


TABLE_KEYS = ("enable_table_keys", "unsafe_enable_table_keys")
"""Whether CREATE TABLE may declare keys that the optimizer relies on although nothing enforces them; both names of the
variable.
"""
REFRESH_EVERY = "enable_refresh_every_mvs"
"""Whether materialized views may have REFRESH AT and REFRESH EVERY."""
UNSAFE_FUNCTIONS = "unsafe_enable_unsafe_functions"
"""Whether the functions of ``mz_unsafe`` may be called, which make a statement wait or fail."""
UNSTABLE_DEPENDENCIES = "unsafe_enable_unstable_dependencies"
"""Whether views may depend on relations, and on unnamed columns of relations, that another release may have otherwise."""
TIMESTAMP_ORACLE = "timestamp_oracle"
"""The implementation that serves timestamps."""
WAY_BACK = "timestamp_oracle_way_back"
"""Whether it stays possible to return to serving timestamps from memory."""
STEP_ENGINE = "step_engine"
"""The engine for steps of dataflows: Spark, DuckDB in process, or chosen by each step's size."""

CLUSTER_SCHEDULES = "enable_cluster_schedule_refresh"
"""Whether clusters may have SCHEDULE = ON REFRESH."""
SCHEDULING_INTERVAL = "cluster_check_scheduling_policies_interval"
"""How often it is decided which clusters with SCHEDULE = ON REFRESH are on."""
COMPACTION_ESTIMATE = "cluster_refresh_mv_compaction_estimate"
"""For how long such a cluster stays on after a refresh, for what is left to be tidied up."""

STORAGE_INTERVAL = "storage_usage_collection_interval"
"""How often it is noted how much is stored; 0: never."""
STORAGE_RETENTION = "storage_usage_retention_period"
"""For how long these notes are kept, at most for `MOST_KEPT_MS`."""
METRICS_INTERVAL = "replica_metrics_history_interval"
"""How often it is noted what replicas take of their machines; 0: never."""
METRICS_RETENTION = "replica_metrics_history_retention_interval"
"""For how long these notes are kept, at most for `MOST_KEPT_MS`."""
MOST_KEPT_MS = 36_525 * 24 * 60 * 60 * 1000

INTROSPECTION = "enable_introspection_subscribes"
"""Whether replicas report introspection rows: frontiers of their dataflows, and elapsed time."""

LIMITS: Mapping[str, str] = {
    "max_tables": "table",
    "max_materialized_views": "materialized view",
    "max_databases": "database",
    "max_schemas_per_database": "schema",
    "max_objects_per_schema": "object",
    "max_clusters": "cluster",
    "max_replicas_per_cluster": "cluster replica",
    "max_roles": "role",
}
"""The variables that limit how many objects of a kind may exist; unlimited by default."""
_ANY_NUMBER = 2**32 - 1

_OF_SYSTEM: Mapping[str, Variable] = {
    **{name: _switch(value) for name, value in msgspec.structs.asdict(OptimizerFeatures()).items()},
    **{name: _switch(False) for name in TABLE_KEYS},
    REFRESH_EVERY: _switch(True),
    CLUSTER_SCHEDULES: _switch(True),
    UNSAFE_FUNCTIONS: _switch(True),
    UNSTABLE_DEPENDENCIES: _switch(False),
    **{
        name: Variable(str(_ANY_NUMBER), Integer(0, _ANY_NUMBER), of_system=True) for name in LIMITS
    },
    TIMESTAMP_ORACLE: Variable(IMPLEMENTATIONS[0], OneOf(IMPLEMENTATIONS), of_system=True),
    WAY_BACK: _switch(False),
    INTROSPECTION: _switch(True),
    SCHEDULING_INTERVAL: Variable("3 s", Duration(), of_system=True),
    COMPACTION_ESTIMATE: Variable("20 min", Duration(), of_system=True),
    STORAGE_INTERVAL: Variable("1 h", Duration(), of_system=True),
    STORAGE_RETENTION: Variable("30 d", Duration(MOST_KEPT_MS), of_system=True),
    METRICS_INTERVAL: Variable("1 min", Duration(), of_system=True),
    METRICS_RETENTION: Variable("30 d", Duration(MOST_KEPT_MS), of_system=True),
    "max_connections": _unlimited("5000"),
    "superuser_reserved_connections": _unlimited("3"),
    STEP_ENGINE: Variable(
        "auto",
        OneOf(
            (
                "auto",
                "spark",
                "duckdb",
            )
        ),
        of_system=True,
    ),
}
VARIABLES: Mapping[str, Variable] = {**_OF_SESSIONS, **_OF_SYSTEM}
"""All variables by name, as known to SET, SHOW, ALTER SYSTEM and ``pg_settings``."""
SESSION_VARIABLES = tuple(sorted(_OF_SESSIONS))
"""The names of session variables."""

_FOREIGN = re.compile(
    r"(unsafe_)?(enable|allow|force|disable)_[a-z0-9_]+|(max|min|default)_[a-z0-9_]+"
)
_FOREIGN_NAMES = frozenset({"log_filter", "opentelemetry_filter"})


def is_foreign(name: str) -> bool:
    """Whether ALTER SYSTEM accepts an unknown name with a notice: one like Materialize's many feature flags and limits,
    which scripts set and whose absence here changes no result.
    """
    return name not in VARIABLES and (
        name in _FOREIGN_NAMES or _FOREIGN.fullmatch(name) is not None
    )


def variable(name: str) -> Variable:
    """The variable with this name.

    Raises:
        UndefinedObject: there is none.
    """
    found = VARIABLES.get(name)
    if found is None:
        raise UndefinedObject(
            f'unrecognized configuration parameter "{name}"', hint=alike(name, VARIABLES)
        )
    return found


def system_value(stored: Mapping[str, str], name: str) -> str:
    """A system variable, or the default of a session variable: as ALTER SYSTEM set it, else its built-in default."""
    found = variable(name)
    try:
        return found.kind.kept(name, stored[name]) if name in stored else found.default
    except InvalidParameter:
        # Older versions stored values without checking them.
        return found.default


def features_of(stored: Mapping[str, str]) -> OptimizerFeatures:
    """The optimizer's switches as ALTER SYSTEM has set them."""
    values: dict[str, Any] = {}
    for name, default in msgspec.structs.asdict(OptimizerFeatures()).items():
        value = system_value(stored, name)
        values[name] = value == "on" if isinstance(default, bool) else int(value)
    return OptimizerFeatures(**values)


def value_for(name: str, values: tuple[str, ...]) -> str:
    """The value that a variable has after being set to ``values``.

    Raises:
        UndefinedObject: there is no such variable.
        InvalidParameter: it cannot be set, or not to that.
    """
    found = variable(name)
    if found.read_only:
        raise InvalidParameter(f'parameter "{name}" cannot be changed', sqlstate="55P02")
    if len(values) != 1 and name not in ("search_path", "datestyle"):
        raise InvalidParameter(f"SET {name} takes only one argument")
    return found.kind.kept(name, ", ".join(values))
