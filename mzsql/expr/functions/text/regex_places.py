r"""Functions of the n-th match of a regular expression: `regexp_count`, `regexp_instr`, `regexp_substr`, and
`regexp_replace` of the n-th.

Promise: matches count from 1 and are searched from a start, as in PostgreSQL. The pattern must be constant. The text
before the start is ignored, so a pattern that asserts something about it (``^``, ``\b``) is refused unless the start is
1. Matches may be empty; if such a pattern has assertions (``$``), only its first match is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text import regexes
from mzsql.expr.functions.text.patterns import (
    FLAGS,
    asks_for_places,
    groups,
    matches_nothing_somewhere,
    spelled,
)
from mzsql.expr.functions.text.sizes import TOO_LARGE
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import INTEGER, TEXT, SqlType

#: Assertions about the preceding text.
_LOOKS_BACK = re.compile(r"(?<!\[)\^|\\[bBA]")
_ALL = FLAGS - {"g"}


def _bound(args: Sequence[Sql], place: int, otherwise: int) -> Ast:
    return args[place].ast if len(args) > place else s.num(otherwise)


class _Search:
    """A text from a start on, and the matches in it."""

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
        self.shown = pattern or ""
        self.spelled = spelled(self.shown, regexes.known_flags(args, flags), engine)
        self.pattern = s.text(self.spelled)
        self.hollow = self.known and matches_nothing_somewhere(self.shown)
        # Beyond the end of the text not even the empty text matches.
        self.beyond = s.gt(self.start, s.add(s.call("LENGTH", args[0].ast), s.num(1)))

    def matches(self, group: int = 0) -> Ast:
        """All matches, or a group of each."""
        found = s.call("REGEXP_EXTRACT_ALL", self.text, self.pattern, s.num(group))
        if not self.hollow or s.known_integer(self.start) == 1:
            return found
        none = s.call("LIST_SLICE", found, s.num(1), s.num(0))
        return s.case((self.beyond, none), otherwise=s.own(found)[0])

    def before(self, number: Ast) -> Ast:
        """The number of characters before the n-th match.

        Raises:
            Unsupported: the positions of the matches before it are unknown.
        """
        if self.hollow and asks_for_places(self.shown):
            return self._before_first(number)
        if self.hollow:
            # The pattern matches everywhere: at the end of the previous match, or one character further if that was
            # empty.
            match = s.variable("rp0")
            size = s.call("GREATEST", s.call("LENGTH", match), s.num(1))
            earlier = s.call("LIST_SLICE", self.matches(), s.num(1), s.sub(number, s.num(1)))
            sizes = s.call("LIST_TRANSFORM", earlier, s.lambda_(("rp0",), size))
            return s.big(s.coalesce(s.call("LIST_SUM", sizes), s.num(0)))
        pieces = s.call("REGEXP_SPLIT_TO_ARRAY", self.text, self.pattern)
        between = _length(s.call("LIST_SLICE", pieces, s.num(1), number))
        earlier = s.call("LIST_SLICE", self.matches(), s.num(1), s.sub(number, s.num(1)))
        return s.add(
            between, s.case((s.gt(number, s.num(1)), _length(earlier)), otherwise=s.num(0))
        )

    def _before_first(self, number: Ast) -> Ast:
        if s.known_integer(number) != 1:
            raise Unsupported(
                f'the place of a match of "{self.shown}" other than the first is not supported',
                hint="The pattern matches the empty text and asks for what stands around it.",
            )
        lead = f"\\A((?s:.*?))(?:{self.spelled})"
        return s.big(s.call("LENGTH", s.regexp_group(self.text, lead, 1)))


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


def _replacing(
    engine: Engine, args: Sequence[Sql]
) -> tuple[_Search, int, Ast, tuple[Sql, Sql, Sql, Sql]]:
    """The search, the number of the match to replace (0: all), the text before it, and the arguments for
    `regexes.replaced` on the rest.
    """
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
        if _LOOKS_BACK.search(search.shown):
            raise Unsupported(
                f'the replacement of a match of "{search.shown}" other than the first is not supported',
                hint="The pattern asks for what stands before it.",
            )
        reach = search.before(s.num(number))
        head = s.concat(head, s.call("LEFT", tail, reach))
        tail = s.call("SUBSTR", tail, s.add(reach, s.num(1)))
    return search, number, head, (Sql(tail, TEXT), args[1], args[2], Sql(s.text(flags), TEXT))


def _replaced(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    search, number, head, given = _replacing(engine, args)
    whole = s.concat(head, regexes.replaced(engine, given, typ))
    if number <= 1 and not search.hollow:
        return whole
    # A text without an n-th match stays: the rest of it could have an empty match.
    there = s.is_not_null(s.call("LIST_EXTRACT", search.matches(), s.num(max(number, 1))))
    kept = s.and_(*s.presence(args), s.not_(there))
    return s.case((kept, args[0].ast), otherwise=whole)


def _writes_too_much(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    *_, given = _replacing(engine, args)
    return regexes.writes_too_much(engine, given, typ)


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
    *further: ErrorRule,
) -> list[ScalarFunc]:
    errors: Callable[[int], tuple[ErrorRule, ...]] = lambda size: (  # noqa: E731 - one line of rules
        regexes.invalid(1),
        _positive(start, "start"),
        *((regexes.bad_flag(flags, allowed),) if size > flags else ()),
        *further,
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
        ErrorRule(_writes_too_much, TOO_LARGE),
    ),
)
