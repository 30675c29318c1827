"""Builders of small SQL expressions, the pieces of all spellings.

Promise: every function returns a fresh AST (an argument that has a parent is copied, so it may be placed twice), with
operators in parentheses and identifiers quoted. Engines differ only where an `Engine` is passed; nothing relies on
transpiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as cast_ast

from sqlglot import expressions as exp

from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.types import NUMERIC_PRECISION, SqlType, range_fields

Ast = exp.Expression

_PLAIN: dict[str, exp.DType] = {
    "boolean": exp.DType.BOOLEAN,
    "smallint": exp.DType.SMALLINT,
    "integer": exp.DType.INT,
    "bigint": exp.DType.BIGINT,
    "uint2": exp.DType.INT,
    "uint4": exp.DType.BIGINT,
    **dict.fromkeys(("oid", "regclass", "regproc", "regtype"), exp.DType.BIGINT),
    "real": exp.DType.FLOAT,
    "double": exp.DType.DOUBLE,
    "text": exp.DType.TEXT,
    "varchar": exp.DType.TEXT,
    "char": exp.DType.TEXT,
    "bytea": exp.DType.VARBINARY,
    "date": exp.DType.DATE,
    "time": exp.DType.BIGINT,
    "timestamp": exp.DType.TIMESTAMPNTZ,
    "timestamptz": exp.DType.TIMESTAMPTZ,
    "uuid": exp.DType.TEXT,
    "jsonb": exp.DType.TEXT,
    "mz_timestamp": exp.DType.BIGINT,
    "unknown": exp.DType.TEXT,
}


def decimal_type(precision: int, scale: int) -> exp.DataType:
    """``DECIMAL(precision, scale)``."""
    return exp.DataType(
        this=exp.DType.DECIMAL,
        expressions=[
            exp.DataTypeParam(this=exp.Literal.number(precision)),
            exp.DataTypeParam(this=exp.Literal.number(scale)),
        ],
    )


def sql_type(typ: SqlType, engine: Engine) -> exp.DataType:
    """The engine's type that carries values of ``typ``; `mzsql.repr.types.arrow_type` is its Arrow form."""
    match typ.kind:
        case "numeric":
            return decimal_type(NUMERIC_PRECISION, typ.effective_scale)
        case "uint8":
            return decimal_type(20, 0)
        case "interval":
            return struct_type(
                ("months", exp.DataType(this=exp.DType.INT)),
                ("days", exp.DataType(this=exp.DType.INT)),
                ("micros", exp.DataType(this=exp.DType.BIGINT)),
            )
        case "list" | "array":
            assert typ.element is not None
            return exp.DataType(
                this=exp.DType.ARRAY, nested=True, expressions=[sql_type(typ.element, engine)]
            )
        case "map":
            assert typ.element is not None
            key = exp.DataType(this=exp.DType.TEXT)
            return exp.DataType(
                this=exp.DType.MAP, nested=True, expressions=[key, sql_type(typ.element, engine)]
            )
        case "range":
            return struct_type(*((n, sql_type(t, engine)) for n, t in range_fields(typ)))
        case "record":
            fields = [
                (f"f{i}", sql_type(column.type, engine))
                for i, (_, column) in enumerate(typ.fields, start=1)
            ]
            return struct_type(*fields)
        case kind:
            return exp.DataType(this=_PLAIN[kind])


def struct_type(*fields: tuple[str, exp.DataType]) -> exp.DataType:
    """A struct type with these fields."""
    return exp.DataType(
        this=exp.DType.STRUCT,
        nested=True,
        expressions=[
            exp.ColumnDef(this=exp.to_identifier(name, quoted=True), kind=kind)
            for name, kind in fields
        ],
    )


def typed(name: exp.DType) -> exp.DataType:
    """An engine type without parameters."""
    return exp.DataType(this=name)


def own(*asts: Ast) -> list[Ast]:
    """The ASTs, ready for a new parent: copied only if they have one.

    Most are placed once; copying at every step would take longer than all other work here.
    """
    found: list[Ast] = []
    seen: set[int] = set()
    for ast in asts:
        taken = ast.parent is not None or id(ast) in seen
        seen.add(id(ast))
        found.append(ast.copy() if taken else ast)
    return found


def cast_to(ast: Ast, kind: exp.DataType) -> Ast:
    """``CAST(ast AS kind)``; only where the cast cannot fail."""
    return exp.Cast(this=own(ast)[0], to=kind)


def try_cast_to(ast: Ast, kind: exp.DataType) -> Ast:
    """``TRY_CAST(ast AS kind)``: NULL where it fails."""
    return exp.TryCast(this=own(ast)[0], to=kind, safe=True)


def cast(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """A cast to the carrier of a SQL type; only where the cast cannot fail."""
    return cast_to(ast, sql_type(typ, engine))


def try_cast(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """A cast to the carrier of a SQL type; NULL where it fails."""
    return try_cast_to(ast, sql_type(typ, engine))


def big(ast: Ast) -> Ast:
    """A cast to bigint."""
    return cast_to(ast, typed(exp.DType.BIGINT))


def integer(ast: Ast) -> Ast:
    """A cast to integer."""
    return cast_to(ast, typed(exp.DType.INT))


def double(ast: Ast) -> Ast:
    """A cast to double."""
    return cast_to(ast, typed(exp.DType.DOUBLE))


def wide(ast: Ast) -> Ast:
    """A cast to ``decimal(38, 0)``, which holds every sum and product of two bigints but one."""
    return cast_to(ast, decimal_type(38, 0))


def hugeint(ast: Ast) -> Ast:
    """A cast to DuckDB's 128-bit integer."""
    return cast_to(ast, typed(exp.DType.INT128))


def string(ast: Ast) -> Ast:
    """A cast to text in the engine's own format; only for types where the engines' formats agree."""
    return cast_to(ast, typed(exp.DType.TEXT))


def num(value: int | str) -> Ast:
    """A numeric literal."""
    body = str(value)
    if body.startswith("-"):
        return exp.Paren(this=exp.Neg(this=exp.Literal.number(body[1:])))
    return exp.Literal.number(body)


def text(value: str) -> Ast:
    """A string literal."""
    return exp.Literal.string(value)


def null() -> Ast:
    """NULL."""
    return exp.Null()


def boolean(value: bool) -> Ast:
    """TRUE or FALSE."""
    return exp.Boolean(this=value)


def call(name: str, *args: Ast) -> Ast:
    """A call of the engine's function with this name."""
    return exp.Anonymous(this=name, expressions=own(*args))


def _operator(cls: type[exp.Binary], left: Ast, right: Ast) -> Ast:
    left, right = own(left, right)
    return exp.Paren(this=cls(this=left, expression=right))


def add(left: Ast, right: Ast) -> Ast:
    """``left + right``."""
    return _operator(exp.Add, left, right)


def sub(left: Ast, right: Ast) -> Ast:
    """``left - right``."""
    return _operator(exp.Sub, left, right)


def mul(left: Ast, right: Ast) -> Ast:
    """``left * right``."""
    return _operator(exp.Mul, left, right)


def div(left: Ast, right: Ast) -> Ast:
    """``left / right``, with the engine's division for these types."""
    left, right = own(left, right)
    return exp.Paren(this=exp.Div(this=left, expression=right, typed=False, safe=False))


def int_div(left: Ast, right: Ast) -> Ast:
    """Truncating integer division: ``DIV`` in Spark (of bigints), ``//`` in DuckDB."""
    left, right = own(left, right)
    return exp.Paren(this=exp.IntDiv(this=left, expression=right))


def mod(left: Ast, right: Ast) -> Ast:
    """``left % right``, with the sign of ``left``."""
    return _operator(exp.Mod, left, right)


def eq(left: Ast, right: Ast) -> Ast:
    """``left = right``."""
    return _operator(exp.EQ, left, right)


def neq(left: Ast, right: Ast) -> Ast:
    """``left <> right``."""
    return _operator(exp.NEQ, left, right)


def lt(left: Ast, right: Ast) -> Ast:
    """``left < right``."""
    return _operator(exp.LT, left, right)


def lte(left: Ast, right: Ast) -> Ast:
    """``left <= right``."""
    return _operator(exp.LTE, left, right)


def gt(left: Ast, right: Ast) -> Ast:
    """``left > right``."""
    return _operator(exp.GT, left, right)


def gte(left: Ast, right: Ast) -> Ast:
    """``left >= right``."""
    return _operator(exp.GTE, left, right)


def and_(*args: Ast) -> Ast:
    """The conjunction; TRUE for no conditions."""
    return _fold(exp.And, args, True)


def or_(*args: Ast) -> Ast:
    """The disjunction; FALSE for no conditions."""
    return _fold(exp.Or, args, False)


def _fold(cls: type[exp.Connector], args: tuple[Ast, ...], empty: bool) -> Ast:
    if not args:
        return boolean(empty)
    result, *others = own(*args)
    for arg in others:
        result = cast_ast("Ast", cls(this=result, expression=arg))
    return exp.Paren(this=result) if len(args) > 1 else result


def not_(arg: Ast) -> Ast:
    """``NOT arg``."""
    return exp.Paren(this=exp.Not(this=exp.Paren(this=own(arg)[0])))


def is_null(arg: Ast) -> Ast:
    """``arg IS NULL``."""
    return exp.Paren(this=exp.Is(this=exp.Paren(this=own(arg)[0]), expression=exp.Null()))


def is_not_null(arg: Ast) -> Ast:
    """``arg IS NOT NULL``."""
    return exp.Paren(
        this=exp.Not(this=exp.Is(this=exp.Paren(this=own(arg)[0]), expression=exp.Null()))
    )


def between(arg: Ast, low: Ast, high: Ast) -> Ast:
    """``arg BETWEEN low AND high``."""
    arg, low, high = own(arg, low, high)
    return exp.Paren(this=exp.Between(this=arg, low=low, high=high))


def case(*branches: tuple[Ast, Ast], otherwise: Ast | None = None) -> Ast:
    """``CASE WHEN … THEN … ELSE … END``."""
    pieces = [piece for branch in branches for piece in branch]
    placed = own(*pieces, *([] if otherwise is None else [otherwise]))
    ifs = [exp.If(this=placed[i], true=placed[i + 1]) for i in range(0, len(pieces), 2)]
    return exp.Case(ifs=ifs, default=None if otherwise is None else placed[-1])


def nullif(arg: Ast, other: Ast) -> Ast:
    """``NULLIF(arg, other)``."""
    return call("NULLIF", arg, other)


def coalesce(*args: Ast) -> Ast:
    """``COALESCE(args…)``."""
    return call("COALESCE", *args)


def concat(*args: Ast) -> Ast:
    """``a || b || …``: NULL if an operand is."""
    result, *others = own(*args)
    for arg in others:
        result = exp.DPipe(this=result, expression=arg)
    return exp.Paren(this=result)


def at_least(arg: Ast, low: Ast) -> Ast:
    """The greater of both; NULL for a NULL ``arg``, which GREATEST would skip."""
    return case((lt(arg, low), low), otherwise=arg)


def at_most(arg: Ast, high: Ast) -> Ast:
    """The lesser of both; NULL for a NULL ``arg``, which LEAST would skip."""
    return case((gt(arg, high), high), otherwise=arg)


def attempt(ast: Ast, engine: Engine) -> Ast:
    """DuckDB's ``TRY(ast)``: NULL where the evaluation fails. Unchanged for Spark, where the caller uses functions that
    do not fail.
    """
    return call("TRY", ast) if engine is Engine.DUCKDB else own(ast)[0]


def try_op(name: str, left: Ast, right: Ast, engine: Engine) -> Ast:
    """``left name right``, where name is add, subtract, multiply or mod; NULL where it fails."""
    if engine is Engine.SPARK:
        return call(f"TRY_{name.upper()}", left, right)
    build = {"add": add, "subtract": sub, "multiply": mul, "mod": mod}[name]
    return call("TRY", build(left, right))


def regexp_replace(value: Ast, pattern: str, replacement: str, engine: Engine) -> Ast:
    """Replace every match of ``pattern``, which must be in the syntax common to Java and RE2."""
    flags = [text("g")] if engine is Engine.DUCKDB else []
    return call("REGEXP_REPLACE", value, text(pattern), text(replacement), *flags)


def matches(value: Ast, pattern: str, engine: Engine) -> Ast:
    """Whether ``pattern`` matches anywhere in the text."""
    name = "REGEXP_LIKE" if engine is Engine.SPARK else "REGEXP_MATCHES"
    return call(name, value, text(pattern))


def regexp_group(value: Ast, pattern: str, group: int) -> Ast:
    """The text of a group in the first match; empty where the group or the pattern does not match."""
    return call("REGEXP_EXTRACT", value, text(pattern), num(group))


def trim_space(value: Ast, engine: Engine) -> Ast:
    """The text without white space at both ends."""
    return regexp_replace(value, "^[ \t\n\r\f\x0b]+|[ \t\n\r\f\x0b]+$", "", engine)


def field(struct: Ast, name: str) -> Ast:
    """A field of a struct."""
    return exp.Dot(
        this=exp.Paren(this=own(struct)[0]), expression=exp.to_identifier(name, quoted=True)
    )


def struct(**fields: Ast) -> Ast:
    """A struct with these fields."""
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
            for name, value in zip(fields, own(*fields.values()), strict=True)
        ]
    )


def array(*items: Ast) -> Ast:
    """An array of the items."""
    return exp.Array(expressions=own(*items))


def lambda_(parameters: tuple[str, ...], body: Ast) -> Ast:
    """A lambda. Parameters are unquoted lower-case names that no column has."""
    return exp.Lambda(this=body, expressions=[exp.to_identifier(name) for name in parameters])


def mapped(items: Ast, name: str, body: Ast, engine: Engine) -> Ast:
    """Of each element of a list what `body` says of it, over the lambda variable `name`."""
    function = "TRANSFORM" if engine is Engine.SPARK else "LIST_TRANSFORM"
    return call(function, items, lambda_((name,), body))


def kept(items: Ast, name: str, condition: Ast, engine: Engine) -> Ast:
    """The elements of a list of which `condition` is true, over the lambda variable `name`."""
    function = "FILTER" if engine is Engine.SPARK else "LIST_FILTER"
    return call(function, items, lambda_((name,), condition))


def size(items: Ast, engine: Engine) -> Ast:
    """How many elements a list has."""
    return call("SIZE" if engine is Engine.SPARK else "LEN", items)


def variable(name: str) -> Ast:
    """A reference to a lambda's parameter."""
    return exp.column(exp.to_identifier(name))


def let(value: Ast, name: str, body: Ast, engine: Engine) -> Ast:
    """``body`` with the lambda parameter ``name`` bound to ``value``, NULL included, so that it is computed once."""
    transformed = mapped(array(value), name, body, engine)
    if engine is Engine.SPARK:
        return call("ELEMENT_AT", transformed, num(1))
    return call("LIST_EXTRACT", transformed, num(1))


def is_simple(ast: Ast) -> bool:
    """Whether an AST is cheap and short enough to be repeated."""
    if isinstance(ast, exp.Paren):
        return is_simple(ast.this)
    if isinstance(ast, exp.Neg | exp.Cast):
        return is_simple(ast.this)
    return isinstance(ast, exp.Column | exp.Literal | exp.Null | exp.Boolean)


def literal_of(ast: Ast) -> exp.Literal | None:
    """The literal inside casts and parentheses; None for anything else, including negative numbers."""
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    return ast if isinstance(ast, exp.Literal) else None


def known_integer(ast: Ast) -> int | None:
    """The value of an integer literal, possibly inside casts, signs and parentheses; None for anything else."""
    sign = 1
    while isinstance(ast, exp.Cast | exp.Paren | exp.Neg):
        sign = -sign if isinstance(ast, exp.Neg) else sign
        ast = ast.this
    if not isinstance(ast, exp.Literal) or ast.is_string:
        return None
    return sign * int(ast.name)


def presence(args: Sequence[Sql]) -> list[Ast]:
    """For each argument that may be NULL, the condition that it is not."""
    return [
        is_not_null(arg.ast)
        for arg in args
        if literal_of(arg.ast) is None and not isinstance(arg.ast, exp.Boolean)
    ]
