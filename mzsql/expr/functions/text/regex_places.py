r"""Which match of a regular expression: `regexp_count`, `regexp_instr`, `regexp_substr`, and `regexp_replace` of the n-th one.

Promise: matches are counted from 1 and looked for from a place on, as in PostgreSQL. The pattern has to be a constant. What stands before
the place is not looked at, so that a pattern that asks for it (``^``, ``\b``) is refused where the place is not the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text import regexes
from mzsql.expr.functions.text.patterns import FLAGS, groups, spelled
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import INTEGER, TEXT, SqlType

#: What asks for what stands before.
_LOOKS_BACK = re.compile(r"(?<!\[)\^|\\[bBA]")
_ALL = FLAGS - {"g"}


def _bound(args: Sequence[Sql], place: int, otherwise: int) -> Ast:
    return args[place].ast if len(args) > place else s.num(otherwise)


class _Search:
    """A text from a place on, and the matches in it."""

    def __init__(self, engine: Engine, args: Sequence[Sql], start: int, flags: int) -> None:
        if engine is not Engine.DUCKDB:
            raise Unsupported("the matches of a regular expression are counted in process")
        pattern = regexes.valid_pattern(args[1])
        self.known = pattern is not None
        self.groups = 0 if pattern is None else len(groups(pattern))
        self.start = _bound(args, start, 1)
        if pattern and _LOOKS_BACK.search(pattern) and s.known_integer(self.start) != 1:
            raise Unsupported(
                f'a search for "{pattern}" that does not begin with the text is not supported',
                hint="The pattern asks for what stands before it.",
            )
        self.text = s.call("SUBSTR", args[0].ast, s.at_least(self.start, s.num(1)))
        self.pattern = s.text(spelled(pattern or "", regexes.known_flags(args, flags), engine))

    def matches(self, group: int = 0) -> Ast:
        """Every match, or a group of each."""
        return s.call("REGEXP_EXTRACT_ALL", self.text, self.pattern, s.num(group))

    def before(self, number: Ast) -> Ast:
        """How many characters of the text stand before the n-th match."""
        pieces = s.call("REGEXP_SPLIT_TO_ARRAY", self.text, self.pattern)
        between = _length(s.call("LIST_SLICE", pieces, s.num(1), number))
        earlier = s.call("LIST_SLICE", self.matches(), s.num(1), s.sub(number, s.num(1)))
        return s.add(
            between, s.case((s.gt(number, s.num(1)), _length(earlier)), otherwise=s.num(0))
        )


def _length(texts: Ast) -> Ast:
    return s.big(s.call("LENGTH", s.call("ARRAY_TO_STRING", texts, s.text(""))))


def _count(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    search = _Search(engine, args, 2, 3)
    return s.cast(s.call("LEN", search.matches()), typ, engine)


def _part(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    search = _Search(engine, args, 2, 4)
    group = 0 if len(args) < 6 else s.known_integer(args[5].ast)
    if group is None:
        raise Unsupported("regexp_substr with a group that is not a constant is not supported")
    if group > search.groups:
        return s.string(s.null())
    return s.call("LIST_EXTRACT", search.matches(group), _bound(args, 3, 1))


def _place(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    search = _Search(engine, args, 2, 5)
    if len(args) > 6 and s.known_integer(args[6].ast) != 0:
        raise Unsupported("regexp_instr of a group is not supported")
    number, behind = _bound(args, 3, 1), _bound(args, 4, 0)
    found = s.call("LIST_EXTRACT", search.matches(), number)
    size = s.case((s.eq(behind, s.num(1)), s.call("LENGTH", found)), otherwise=s.num(0))
    at = s.add(s.add(s.big(search.start), search.before(number)), s.big(size))
    none = s.case((s.and_(*s.presence(args)), s.num(0)))
    return s.cast(s.case((s.is_not_null(found), at), otherwise=none), typ, engine)


def _replaced(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    search = _Search(engine, args, 3, 5)
    number = 1 if len(args) < 5 else s.known_integer(args[4].ast)
    if number is None:
        raise Unsupported(
            "regexp_replace of a match whose number is not a constant is not supported"
        )
    flags = regexes.known_flags(args, 5)
    every = "g" if number == 0 or ("g" in flags and len(args) < 5) else ""
    flags = flags.replace("g", "") + every
    head = s.call("LEFT", args[0].ast, s.sub(s.at_least(search.start, s.num(1)), s.num(1)))
    tail = search.text
    if number > 1:
        skipped = search.before(s.num(number))
        there = s.is_not_null(s.call("LIST_EXTRACT", search.matches(), s.num(number)))
        reach = s.case((there, skipped), otherwise=s.big(s.call("LENGTH", tail)))
        head = s.concat(head, s.call("LEFT", tail, reach))
        tail = s.call("SUBSTR", tail, s.add(reach, s.num(1)))
    given = (Sql(tail, TEXT), args[1], args[2], Sql(s.text(flags), TEXT))
    return s.concat(head, regexes.replaced(engine, given, typ))


def _positive(place: int, what: str) -> ErrorRule:
    return ErrorRule(
        lambda _engine, args, _typ: (
            s.boolean(False) if len(args) <= place else s.lt(args[place].ast, s.num(1))
        ),
        lambda _engine, args, _typ: s.concat(
            s.text(f'invalid value for parameter "{what}": '), s.string(args[place].ast)
        ),
    )


def _family(
    name: str,
    result: SqlType,
    value: Spelling,
    shapes: Sequence[tuple[SqlType, ...]],
    flags: int,
    start: int,
    allowed: frozenset[str] = _ALL,
) -> list[ScalarFunc]:
    errors: Callable[[int], tuple[ErrorRule, ...]] = lambda size: (  # noqa: E731 - one line of rules
        regexes.invalid(1),
        _positive(start, "start"),
        *((regexes.bad_flag(flags, allowed),) if size > flags else ()),
    )
    return [
        ScalarFunc(
            key=f"{name}_{'_'.join(t.kind for t in shape)}",
            name=name,
            args=shape,
            result=result,
            value=value,
            introduces_nulls=name == "regexp_substr",
            errors=errors(len(shape)),
        )
        for shape in shapes
    ]


_T, _I = TEXT, INTEGER
FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_family("regexp_count", INTEGER, _count, ((_T, _T), (_T, _T, _I), (_T, _T, _I, _T)), 3, 2),
    *_family(
        "regexp_substr",
        TEXT,
        _part,
        tuple((_T, _T, _I, _I, _T, _I)[:n] for n in range(2, 7)),
        4,
        2,
    ),
    *_family(
        "regexp_instr",
        INTEGER,
        _place,
        tuple((_T, _T, _I, _I, _I, _T, _I)[:n] for n in range(2, 8)),
        5,
        2,
    ),
    *_family(
        "regexp_replace",
        TEXT,
        _replaced,
        tuple((_T, _T, _T, _I, _I, _T)[:n] for n in range(4, 7)),
        5,
        3,
        FLAGS,
    ),
)
