"""Named and VARIADIC arguments: ``make_interval(days => 3)``, ``concat_ws(',', VARIADIC ARRAY['a', 'b'])``.

Promise: before a call is planned, its arguments are put in position, or it becomes another expression with the same
value; omitted arguments get the defaults of PostgreSQL's documentation. The trade-off: only the functions listed here
have argument names.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import function_name, position_of, unparen
from mzsql.repr.errors import SqlSyntaxError, UndefinedFunction, Unsupported

#: The key in a node's meta that marks an array as VARIADIC.
VARIADIC = "variadic"
_CLOCK = ("hour", "min", "sec")
#: Argument names, and defaults of arguments that may be omitted while a later one is given.
_NAMES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "make_date": (("year", "month", "day"), {}),
    "make_interval": (
        ("years", "months", "weeks", "days", "hours", "mins", "secs"),
        dict.fromkeys(("years", "months", "weeks", "days", "hours", "mins", "secs"), "0"),
    ),
    "make_time": (_CLOCK, {}),
    "make_timestamp": (("year", "month", "mday", *_CLOCK), {}),
    "make_timestamptz": (("year", "month", "mday", *_CLOCK, "timezone"), {}),
    "jsonb_set": (("jsonb_in", "path", "replacement", "create_if_missing"), {}),
    "jsonb_insert": (("jsonb_in", "path", "replacement", "insert_after"), {}),
    "jsonb_strip_nulls": (("target",), {}),
    "parse_ident": (("str", "strict"), {}),
}
#: The expression for a call with a VARIADIC array, by function and number of arguments.
_OF_ARRAY: Mapping[tuple[str, int], str] = {
    ("concat", 1): "array_to_string($1, '')",
    ("concat_ws", 2): "array_to_string($2, $1)",
    ("jsonb_build_array", 1): "to_jsonb($1)",
    ("jsonb_extract_path", 2): "$1 #> $2",
    ("jsonb_extract_path_text", 2): "$1 #>> $2",
    ("num_nulls", 1): "cardinality($1) - cardinality(array_remove($1, NULL))",
    ("num_nonnulls", 1): "cardinality(array_remove($1, NULL))",
}


def placed(node: exp.Expr) -> exp.Expr | None:
    """The call with its arguments in position; None where they already are.

    Raises:
        SqlSyntaxError: a name is given twice, or a positional argument follows a named one.
        UndefinedFunction: the function has no argument of this name.
        Unsupported: the function accepts no VARIADIC array.
    """
    arguments = node.expressions
    if any(isinstance(argument, exp.PropertyEQ) for argument in arguments):
        return _by_name(node)
    if arguments and arguments[-1].meta.get(VARIADIC):
        return _spread(node)
    return None


def _by_name(node: exp.Expr) -> exp.Expr:
    name = function_name(node)
    known, defaults = _NAMES.get(name, ((), {}))
    plain = [a for a in node.expressions if not isinstance(a, exp.PropertyEQ)]
    given: dict[str, exp.Expr] = dict(zip(known, plain, strict=False))
    for i, argument in enumerate(node.expressions):
        if not isinstance(argument, exp.PropertyEQ):
            if i >= len(plain):
                raise SqlSyntaxError(
                    "positional argument cannot follow named argument",
                    position=position_of(argument),
                )
            continue
        key = fold(argument.this)
        if key in given:
            raise SqlSyntaxError(
                f'argument name "{key}" used more than once', position=position_of(argument)
            )
        given[key] = argument.expression
    last = max((known.index(key) for key in given if key in known), default=-1)
    wanted = known[: last + 1]
    if (
        len(plain) > len(known)
        or set(given) - set(known)
        or set(wanted) - set(given) - set(defaults)
    ):
        raise UndefinedFunction(
            f"function {name} has no arguments of these names: {', '.join(given)}",
            position=position_of(node),
            hint=f"Its arguments: {', '.join(known)}."
            if known
            else "Write its arguments without names.",
        )
    call = node.copy()
    call.set(
        "expressions",
        [
            given[key].copy() if key in given else exp.Literal.number(defaults[key])
            for key in wanted
        ],
    )
    return call


def _spread(node: exp.Expr) -> exp.Expr:
    """The elements of a written-out array as arguments; otherwise the expression for the call over the whole array."""
    name = function_name(node)
    *before, array = node.expressions
    inner = unparen(array)
    if isinstance(inner, exp.Array) and not any(
        isinstance(e, exp.Query) for e in inner.expressions
    ):
        call = node.copy()
        call.set(
            "expressions", [*(a.copy() for a in before), *(e.copy() for e in inner.expressions)]
        )
        return call
    sql = _OF_ARRAY.get((name, len(node.expressions)))
    if sql is None:
        raise Unsupported(
            f"VARIADIC with an array that is not written out is not supported by {name}",
            position=position_of(node),
        )
    return filled(sql, [*before, array])


__all__ = ["VARIADIC", "placed"]
