"""Every scalar function of the table against PostgreSQL, over values of every type, NULLs and extremes among them."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import psycopg
import pytest
from function_cases import Case, build, is_alias
from postgres_spelling import TYPES, literal, spelled

from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.scalar import Call, Column
from mzsql.repr.datum import Datum
from mzsql.repr.types import ColumnType, SqlType
from mzsql.repr.values import datum_text

CASES = build()

#: Where we mean to differ from PostgreSQL, and why.
DIFFERENT = {
    "mod_real": "PostgreSQL has no modulo of floats, Materialize has",
    "mod_double": "PostgreSQL has no modulo of floats, Materialize has",
    "boolean_to_bigint": "PostgreSQL casts booleans to integer only",
    "bigint_to_boolean": "PostgreSQL casts integer only to boolean",
    "lt_interval": "Materialize compares months first, PostgreSQL a month as 30 days",
    "lte_interval": "as lt_interval",
    "gt_interval": "as lt_interval",
    "gte_interval": "as lt_interval",
    "numeric_to_varchar": "cut after trailing zeros that we do not print",
    "numeric_to_char": "as numeric_to_varchar",
    "real_to_numeric": "PostgreSQL keeps 6 digits of a real, Materialize all that name it",
    "double_to_numeric": "PostgreSQL keeps 15 digits of a double, Materialize all that name it",
    "text_to_time": "PostgreSQL also takes the time out of a timestamp's text",
    "make_timestamp": "Materialize counts years before Christ as astronomers do, from 0",
    "uuid_generate_v5": "PostgreSQL has it in an extension only",
    "convert_from": "PostgreSQL knows every encoding, we only UTF-8",
    "convert_to": "as convert_from",
    "constant_time_eq_text": "PostgreSQL has no such function",
    "constant_time_eq_bytea": "PostgreSQL has no such function",
    "date_bin_unix_epoch_ts": "PostgreSQL asks for an origin",
    "date_bin_unix_epoch_tstz": "PostgreSQL asks for an origin",
    **{f"datediff_{kind}": "PostgreSQL has no such function" for kind in ("timestamp", "timestamptz", "date", "time")},
    "try_parse_monotonic_iso8601_timestamp": "PostgreSQL has no such function",
    "is_rbac_enabled": "PostgreSQL has no such function",
    "mz_raise_if": "PostgreSQL has no such function",
    "error_if_null": "PostgreSQL has no such function",
    **{f"text_to_{name}": "PostgreSQL names roles in items, and cuts vectors silently"
       for name in ("aclitem", "mz_aclitem", "int2vector", "oidvector")},
    **dict.fromkeys(("text_to_name", "text_to_char_code", "integer_to_char_code", "char_code_to_integer"),
                    "held by the records of expressions: its type is a text's here"),
    "pg_encoding_to_char": "PostgreSQL has other encodings, too",
    "pg_get_ruledef": "PostgreSQL has rules",
    "pg_tablespace_location": "PostgreSQL has tablespaces",
    **dict.fromkeys(("numeric_widened", "unsigned_zero_real", "unsigned_zero_double"), "no statement can call it"),
    "radians_double": "underflow of the smallest denormal",
    **{f"{kind}_to_{to}_checked": "a cast on assignment, which PostgreSQL has no expression for"
       for kind in ("text", "varchar", "char") for to in ("varchar", "char")},
}  # fmt: skip
#: Single arguments that are left out.
_UNLIKE: dict[str, set[Datum]] = {
    "div_double": {-0.0},  # NaN / -0 is NaN in PostgreSQL, an error in Materialize
    "double_to_text": {2e23},  # PostgreSQL prints one digit more than needed
    "double_to_varchar": {2e23},
    "double_to_char": {2e23},
    "text_to_numeric": {"NaN"},  # NaN is not carried by our numerics
    "text_to_date": {"Infinity"},
    "text_to_timestamp": {"Infinity"},
    "text_to_timestamptz": {"Infinity"},
    "text_to_interval": {".5", "5.", "100%"},
    "factorial": {59},  # more than 38 digits
    "lpad_fill": {2147483647},  # nothing to fill with: we refuse the length all the same
    "rpad_fill": {2147483647},
    "like": {"dangling\\"},  # PostgreSQL only finds a dangling escape when matching gets there
    "ilike": {"dangling\\"},
    "to_timestamp": {math.inf, -math.inf},
    "overlay": {2147483647},  # PostgreSQL's own overflow
    "overlay_for": {2147483647},
    "overlay_bytea": {2147483647},
    "overlay_for_bytea": {2147483647},
}


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection) -> psycopg.Connection:
    postgres.execute(
        "CREATE FUNCTION attempt(q text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE r text; "
        "BEGIN EXECUTE q INTO r; RETURN r; EXCEPTION WHEN OTHERS THEN RETURN 'ERROR: ' || sqlerrm; END $$"
    )
    return postgres


def _comparable() -> list[Case]:
    found = []
    for case in CASES.cases:
        kinds = [CASES.columns[i].type.kind for i in case.columns] + [case.expr.typ.kind]
        if any(kind not in TYPES for kind in kinds) or case.func.key in DIFFERENT:
            continue
        if "jsonb" in kinds:
            continue  # its text is Materialize's; compared as documents in tests/dbapi
        if not is_alias(case.func.key) and case.func.name not in ("row", "record_get"):
            found.append(case)
    return found


def _fits(text: str, typ: SqlType) -> bool:
    """Whether a number of PostgreSQL's fits our 38 digits, those behind the point fixed."""
    return abs(Decimal(text)) < Decimal(10) ** (38 - typ.effective_scale)


def _agree(case: Case, theirs: str | None, ours: Datum | EvalError, row: tuple[Datum, ...]) -> bool:
    typ = case.expr.typ
    kinds = [arg.kind for arg in case.func.args]
    failed = theirs is not None and theirs.startswith("ERROR")
    if case.func.key == "pg_size_pretty" and theirs is not None and "." in theirs:
        # Our numerics show no zeros at their ends, as Materialize's.
        theirs = re.sub(r"[.]?0+ bytes$", " bytes", theirs)
    if isinstance(ours, EvalError):
        if "2^63 nanoseconds" in ours.message:
            return True  # Materialize's limit of date_bin
        if ours.message == "length must be nonnegative":
            return True  # where PostgreSQL pads to no length at all
        beyond = ("numeric field overflow", "value out of range: overflow")
        if typ.kind == "numeric" and ours.message in beyond and not failed:
            # Ours has 38 digits; so have its operands, brought to one scale.
            numbers = [str(v) for v in row if v is not None]
            wide = [n for n in numbers if not _fits(n, SqlType("numeric"))]
            return theirs is not None and (bool(wide) or not _fits(theirs, typ))
        return failed
    if theirs is None or ours is None or failed:
        return theirs is None and ours is None
    if typ.kind == "numeric":
        exact = case.func.rounded and case.func.key != "sqrt_numeric"
        theirs_number, ours_number = Decimal(theirs), Decimal(str(ours))
        return (
            theirs_number == ours_number
            if exact
            else math.isclose(theirs_number, ours_number, rel_tol=1e-12)
        )
    if typ.kind in ("real", "double"):
        a, b = float(theirs), float(str(ours))
        near = 1e-13 if typ.kind == "double" else 1e-7
        tiny = 1e-45 if typ.kind == "real" else 0
        return math.isclose(a, b, rel_tol=near, abs_tol=tiny) or (math.isnan(a) and math.isnan(b))
    shown = datum_text(ours, typ)
    if "interval" in (typ.kind, *kinds) and typ.kind in ("interval", "text", "varchar", "char"):
        # PostgreSQL abbreviates months.
        theirs = re.sub(r"\bmon(s?)\b", r"month\1", theirs)
        if typ.length is not None:
            return theirs[: typ.length].startswith(shown.rstrip()) or "month" in theirs
    if typ.kind == "char":
        return theirs.rstrip() == shown.rstrip()
    if case.func.key == "numeric_to_text":
        return Decimal(theirs) == Decimal(shown)
    return theirs == shown


def test_postgresql_has_every_function_that_is_compared(postgres: psycopg.Connection) -> None:
    cases = _comparable()
    queries = []
    for case in cases:
        types = [CASES.columns[i].type for i in case.columns]
        args = [literal(None, typ) for typ in types]
        queries.append(f"SELECT ({spelled(case.func, args, case.expr.typ)})::text")
    found = postgres.execute(
        "SELECT attempt(q) FROM unnest(%s::text[]) WITH ORDINALITY AS u(q, n) ORDER BY n",
        (queries,),
    ).fetchall()
    unknown = re.compile("syntax error|does not exist|ambiguous|not unique|cannot cast")
    told = zip(cases, queries, (text for (text,) in found), strict=True)
    assert not [(case.func.key, q, text) for case, q, text in told if unknown.search(text or "")]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 3])
def test_every_function_answers_as_postgresql_does(
    postgres: psycopg.Connection, every: int
) -> None:
    evaluator = Evaluator(exact_numerics=False)
    wrong: list[str] = []
    compared = 0
    for case in _comparable()[::every]:
        types = [CASES.columns[i].type for i in case.columns]
        unlike = _UNLIKE.get(case.func.key, set())
        rows = list(dict.fromkeys(tuple(row[i] for i in case.columns) for row in CASES.rows))
        rows = [row for row in rows if not unlike.intersection(row)]
        if case.func.key in (
            "sqrt_numeric",
            "exp_numeric",
            "ln_numeric",
            "log10_numeric",
            "power_numeric",
        ):
            # In doubles: what is far from 1 has too few digits behind the point to compare.
            rows = [
                row for row in rows if all(v is None or abs(Decimal(str(v))) < 100 for v in row)
            ]
        queries = []
        for row in rows:
            args = [literal(value, typ) for value, typ in zip(row, types, strict=True)]
            if case.func.key == "div_numeric":
                args = [f"({arg})::numeric(1000,40)" for arg in args]
            text = spelled(case.func, args, case.expr.typ)
            assert text is not None
            cast = (
                f"numeric(1000,{case.expr.typ.effective_scale})::text"
                if case.expr.typ.kind == "numeric"
                else "text"
            )
            queries.append(f"SELECT ({text})::{cast}")
        found = postgres.execute(
            "SELECT attempt(q) FROM unnest(%s::text[]) WITH ORDINALITY AS u(q, n) ORDER BY n",
            (queries,),
        ).fetchall()
        local = Call(case.func.key, tuple(Column(i) for i in range(len(types))), case.expr.typ)
        ours = evaluator.evaluate_rows([local], rows, [ColumnType(typ) for typ in types])
        for row, query, (theirs,), (mine,) in zip(rows, queries, found, ours, strict=True):
            compared += 1
            if not _agree(case, theirs, mine, row):
                wrong.append(
                    f"{case.func.key}{row}: PostgreSQL {theirs!r}, ours {mine!r} [{query}]"
                )
    assert compared > 15_000 // every - 1_000
    assert not wrong, "\n".join(wrong[:40])


def test_reasons_to_differ_name_functions_that_exist() -> None:
    keys = {case.func.key for case in CASES.cases}
    assert set(DIFFERENT) | set(_UNLIKE) <= keys
