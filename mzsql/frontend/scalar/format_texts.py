"""``format(text, …)``.

Promise: PostgreSQL's specifiers: ``%s``, ``%I`` (an identifier), ``%L`` (a literal), ``%%``, with positions (``%2$s``)
and widths (``%-10s``, ``%*s``). The format must be a constant: the call becomes a concatenation of its pieces, which
every engine can compute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.typed import Typed
from mzsql.repr.errors import InvalidParameter, UndefinedFunction, Unsupported

_SPECIFIER = re.compile(
    r"%(?:(?P<percent>%)|(?:(?P<place>\d+)\$)?(?P<left>-*)(?:(?P<width>\d+)|(?P<by>\*)(?:(?P<at>\d+)\$)?)?(?P<kind>[sIL]?))"
)
#: In the templates, $1 is the value.
_SHOWN = {
    "s": "concat($1)",
    "I": "CASE WHEN mz_internal.mz_raise_if(($1) IS NULL, 'null values cannot be formatted as an SQL identifier')"
    " THEN NULL ELSE quote_ident(concat($1)) END",
    "L": "CASE WHEN ($1) IS NULL THEN 'NULL' ELSE quote_literal(concat($1)) END",
}
#: $1 is the text, $2 the width; a negative one pads on the right.
_WIDE = """CASE WHEN $2 < 0 THEN rpad($1, greatest(length($1), -($2)), ' ')
    ELSE lpad($1, greatest(length($1), coalesce($2, 0)), ' ') END"""


def plan_format(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call of `format`.

    Raises:
        UndefinedFunction: it has no arguments.
        Unsupported: the format is not a constant.
        InvalidParameter: the format is malformed, or an argument is missing (22023).
    """
    args, position = list(node.expressions), position_of(node)
    if not args:
        raise UndefinedFunction("function format() does not exist", position=position)
    form = args[0]
    while isinstance(form, exp.Cast | exp.Paren):
        form = form.this
    if isinstance(form, exp.Null):
        return ctx.plan(exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.TEXT)))
    if not isinstance(form, exp.Literal) or not form.is_string:
        raise Unsupported(
            "format with a format that is not a constant is not supported", position=position
        )
    pieces = _pieces(form.name, args[1:], position)
    return ctx.plan(exp.Anonymous(this="concat", expressions=pieces or [exp.Literal.string("")]))


def _pieces(form: str, args: Sequence[exp.Expr], position: int | None) -> list[exp.Expr]:
    pieces: list[exp.Expr] = []
    taken = 0

    def argument(place: str | None) -> exp.Expr:
        nonlocal taken
        taken = taken + 1 if place is None else int(place)
        if taken == 0:
            raise InvalidParameter(
                "format specifies argument 0, but arguments are numbered from 1", position=position
            )
        if taken > len(args):
            raise InvalidParameter("too few arguments for format()", position=position)
        return args[taken - 1]

    end = 0
    for found in _SPECIFIER.finditer(form):
        if found.start() > end:
            pieces.append(exp.Literal.string(form[end : found.start()]))
        end = found.end()
        if found["percent"]:
            pieces.append(exp.Literal.string("%"))
            continue
        if not found["kind"]:
            wrong = form[end : end + 1]
            said = (
                f'unrecognized format() type specifier "{wrong}"'
                if wrong
                else "unterminated format() type specifier"
            )
            raise InvalidParameter(said, position=position, hint='For a single "%" use "%%".')
        width: exp.Expr | None = None
        if found["by"]:
            width = argument(found["at"])
        elif found["width"]:
            width = exp.Literal.number(found["width"])
        shown = filled(_SHOWN[found["kind"]], [argument(found["place"])])
        if width is not None:
            width = filled("-abs($1)" if found["left"] else "$1", [width])
            shown = filled(_WIDE, [shown, width])
        pieces.append(shown)
    if end < len(form):
        pieces.append(exp.Literal.string(form[end:]))
    return pieces
