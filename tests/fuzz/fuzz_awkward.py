"""Tables of every type, filled with the values that code gets wrong, and changes of them.

Promise: the same random numbers, the same tables and changes. Tables share the column ``k``, an integer out of few, by which rows are found
again, and their other columns pair up: what is a numeric in one is one of another scale, or an integer, in the next. Values are written as
texts without a type, which both mzsql and PostgreSQL read as the column's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Each kind's SQL type, and its values.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "boolean": ("boolean", ("true", "false")),
    "smallint": ("smallint", ("0", "1", "-1", "32767", "-32768")),
    "integer": ("integer", ("0", "1", "2", "-1", "7", "2147483647", "-2147483648")),
    "bigint": ("bigint", ("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "4294967296")),
    "uint2": ("uint2", ("0", "1", "65535")),
    "uint4": ("uint4", ("0", "1", "4294967295")),
    "uint8": ("uint8", ("0", "1", "18446744073709551615", "9223372036854775808")),
    "oid": ("oid", ("0", "1", "4294967295")),
    "real": ("real", ("0", "-0", "1.5", "0.1", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "16777217")),
    "double": ("double precision", ("0", "-0", "1.5", "0.1", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308", "1e16",
        "-2.5")),
    "numeric2": ("numeric(12, 2)", ("0", "0.00", "1.50", "-1.5", "2", "9999999999.99", "-9999999999.99", "0.01")),
    "numeric4": ("numeric(20, 4)", ("0", "1.5", "1.5000", "2.0001", "2", "-1.5", "9999999999.99", "9999999999999999.9999", "0.0001")),
    "numeric0": ("numeric(38, 0)", ("0", "1", "2", "-1", "99999999999999999999999999999999999999", "9999999999")),
    "numeric": ("numeric", ("0", "1.5", "2.0001", "2.00", "-1.50", "0.000000000000000001", "12345678901234567890.5")),
    "text": ("text", ("", " ", "a", "A", "Straße", "STRASSE", "İi", "ı", "ΣΑΣ", "σας", "ﬁ", "e\u0301", "é", "😀", "a\U0010ffff", "\u00a0",
        "10", "1e3",
                      "%", "_", "\\", "it's", "a b", "NULL", "日本", "\t", "DŽ", "ǆ", "Å", "Ａ")),
    "varchar": ("varchar(6)", ("", "a", "a ", "ß", "İi", "ﬁ", "10", "σας", "é")),
    "char": ("char(4)", ("", "a", "ab", "ß", "10", "😀", "Aa")),
    "bytea": ("bytea", ("", "\\x00", "\\x6162", "\\x61", "\\xff00", "\\xc3", "\\xc39f", "\\x80")),
    "date": ("date", ("2024-10-27", "2024-03-31", "2020-02-29", "0001-01-01", "9999-12-31", "1582-10-04", "1582-10-15", "1970-01-01",
        "1900-02-28")),
    "time": ("time", ("00:00:00", "02:30:00", "23:59:59.999999", "12:00:00", "00:00:00.000001")),
    "timestamp": ("timestamp", ("2024-10-27 02:30:00", "2024-10-27 01:30:00", "2024-03-31 02:30:00", "2024-11-03 01:30:00",
        "0001-01-01 00:00:00",
                                "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", "1582-10-10 00:00:00", "2011-12-30 12:00:00",
                                "2020-02-29 12:34:56.789")),
    "timestamptz": ("timestamptz", ("2024-10-27 00:30:00+00", "2024-10-27 01:30:00+00", "2024-03-31 01:00:00+00", "2024-11-03 05:30:00+00",
                                    "2024-11-03 06:30:00+00", "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00",
                                        "1900-01-01 00:00:00+00")),
    "interval": ("interval", ("1 month", "30 days", "720 hours", "1 day", "24 hours", "0", "-1 month", "1 month -30 days", "1 year",
        "12 months",
                              "00:00:00.000001", "-00:00:01", "90 minutes")),
    "uuid": ("uuid", ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                      "80000000-0000-0000-0000-000000000001")),
    "jsonb": ("jsonb", ("{}", "[]", "null", "1", "1.0", "1e30", '"a"', '"1"', "true",
        '{"a": 1, "b": null}', '{"b": null, "a": 1.00}', '[1, "a", null]',
                        '"ß"', '{"a": {"b": [1]}}', '""')),
    "mz_timestamp": ("mz_timestamp", ("0", "1", "1700000000000")),
    "integers": ("integer[]", ("{}", "{1}", "{1,2}", "{2,1}", "{NULL}", "{1,NULL}", "{2147483647}")),
    "texts": ("text[]", ("{}", "{a}", "{ß,İ}", "{NULL,b}", '{"",ab}', '{"NULL"}')),
    "list": ("integer list", ("{}", "{1}", "{1,2}", "{NULL}", "{2,NULL,1}")),
    "map": ("map[text=>integer]", ("{}", "{a=>1}", "{a=>NULL}", "{a=>1,b=>2}", "{ß=>2}")),
    "range": ("int4range", ("empty", "[1,5)", "[1,4]", "[1,1]", "(,3)", "[2,)", "(,)", "[-2147483648,0)")),
    "numrange": ("numrange", ("empty", "[1.5,2.0001)", "[1.50,2.0001)", "(,0]", "[0,)")),
    "tstzrange": ("tstzrange", ("empty", "[2024-10-27 00:30+00,2024-10-27 01:30+00)", "(,2024-03-31 01:00+00)")),
}  # fmt: skip
#: Kinds that PostgreSQL has, orders alike, and whose values it writes alike.
COMMON = ("boolean", "smallint", "integer", "bigint", "double", "numeric2", "numeric4", "text", "varchar", "char", "bytea", "date", "time",
          "timestamp", "timestamptz", "uuid", "integers", "texts", "range")  # fmt: skip
#: Kinds whose values are compared with each other.
FAMILIES = (
    ("numeric2", "numeric4", "numeric0", "numeric", "integer", "bigint", "smallint"),
    ("real", "double"),
    ("text", "varchar"),
    ("timestamp", "timestamptz", "date"),
    ("uint2", "uint4", "uint8"),
)
_KEYS = range(6)


@dataclass(frozen=True)
class Column:
    """A column: its name and its kind; None for what is known to have a type, but not which."""

    name: str
    kind: str | None


@dataclass(frozen=True)
class Table:
    """A table; its first column is ``k``."""

    name: str
    columns: tuple[Column, ...]

    def created(self) -> str:
        """What makes it."""
        columns = ", ".join(f"{c.name} {KINDS[str(c.kind)][0]}" for c in self.columns)
        return f"CREATE TABLE {self.name} ({columns})"


def _relative(rng: random.Random, kind: str, known: Sequence[str]) -> str:
    """A kind whose values are compared with one's: mostly itself."""
    if rng.random() < 0.5:
        return kind
    family = next((family for family in FAMILIES if kind in family), (kind,))
    return rng.choice([one for one in family if one in known])


def random_tables(rng: random.Random, count: int = 2, *, common: bool = False) -> list[Table]:
    """Tables t0, t1, … of as many columns; `common`: of types that PostgreSQL has too."""
    known = COMMON if common else tuple(KINDS)
    kinds = [rng.choice(known) for _ in range(rng.randint(3, 6))]
    if rng.random() < 0.4:
        kinds.append(rng.choice(("numeric2", "numeric4")))
    made = []
    for number in range(count):
        own_kinds = kinds if number == 0 else [_relative(rng, kind, known) for kind in kinds]
        columns = [Column("k", "integer"), *(Column(f"c{n}", k) for n, k in enumerate(own_kinds))]
        made.append(Table(f"t{number}", tuple(columns)))
    return made


def quoted(value: str) -> str:
    """A text as a constant."""
    return "'" + value.replace("'", "''") + "'"


def value_of(rng: random.Random, kind: str, *, nulls: float = 0.15) -> str:
    """A value as what a column of a kind takes."""
    return "NULL" if rng.random() < nulls else quoted(rng.choice(KINDS[kind][1]))


def random_row(rng: random.Random, table: Table) -> str:
    """A row as INSERT writes it."""
    values = [value_of(rng, str(column.kind)) for column in table.columns[1:]]
    return f"({rng.choice(_KEYS)}, {', '.join(values)})"


def _rows(rng: random.Random, table: Table) -> str:
    rows = [random_row(rng, table) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        rows.append(rng.choice(rows))
    return f"INSERT INTO {table.name} VALUES {', '.join(rows)}"


def _where(rng: random.Random) -> str:
    return rng.choice([f"k = {rng.choice(_KEYS)}", f"k < {rng.choice(_KEYS)}", "k % 2 = 0", "true"])


def random_change(rng: random.Random, tables: list[Table]) -> list[str]:
    """The statements of a change: one, or a transaction."""
    table = rng.choice(tables)
    match rng.randrange(8):
        case 0 | 1 | 2:
            return [_rows(rng, table)]
        case 3:
            return [f"DELETE FROM {table.name} WHERE {_where(rng)}"]
        case 4 | 5:
            column = rng.choice(table.columns[1:])
            value = value_of(rng, str(column.kind))
            return [f"UPDATE {table.name} SET {column.name} = {value} WHERE {_where(rng)}"]
        case 6:
            # Every row leaves and returns at one time.
            return [f"UPDATE {table.name} SET k = k WHERE {_where(rng)}"]
        case _:
            return ["BEGIN", *(_rows(rng, rng.choice(tables)) for _ in range(2)), "COMMIT"]


def emptied(tables: list[Table]) -> list[str]:
    """What leaves no row."""
    return [f"DELETE FROM {table.name}" for table in tables]
