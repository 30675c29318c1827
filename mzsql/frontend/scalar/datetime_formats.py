"""``to_date(text, format)`` and ``to_timestamp(text, format)``: dates and times read by a format.

Promise: as PostgreSQL reads them without FX: blanks around fields and missing separators are skipped; a field that is
not directly followed by a digit may have any number of digits; text after the last field is ignored. The format must be
a constant: the call becomes a regular expression and functions of its groups, which every engine can compute. The
trade-off: weeks, Roman numerals and time zone names are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr.errors import InvalidParameter, Unsupported

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: Numeric fields with their number of digits; longer names before their prefixes.
_NUMBERS = {
    "YYYY": 4, "YYY": 3, "YY": 2, "Y": 1, "MM": 2, "DDD": 3, "DD": 2, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2,
    "SSSSS": 5, "SSSS": 5, "SS": 2, "MS": 3, "US": 6, "FF1": 1, "FF2": 2, "FF3": 3, "FF4": 4, "FF5": 5, "FF6": 6,
    "J": 7, "Q": 1, "D": 1, "CC": 2, "TZH": 2, "TZM": 2,
}  # fmt: skip
_NAMES = {
    "MONTH": "|".join(_MONTHS),
    "MON": "|".join(name[:3] for name in _MONTHS),
    "DAY": "|".join(_DAYS),
    "DY": "|".join(name[:3] for name in _DAYS),
    "A.M.": "[ap][.]m[.]",
    "P.M.": "[ap][.]m[.]",
    "AM": "[ap]m",
    "PM": "[ap]m",
    "B.C.": "b[.]c[.]|a[.]d[.]",
    "A.D.": "b[.]c[.]|a[.]d[.]",
    "BC": "bc|ad",
    "AD": "bc|ad",
}
_REFUSED = (
    "IYYY",
    "IYY",
    "IY",
    "I",
    "IDDD",
    "ID",
    "IW",
    "WW",
    "W",
    "RM",
    "TZ",
    "OF",
    "FX",
    "Y,YYY",
)
_WORDS = sorted((*_NUMBERS, *_NAMES, *_REFUSED), key=len, reverse=True)
_ELEMENT = re.compile(
    r"(?P<fill>FM)?(?P<word>"
    + "|".join(map(re.escape, _WORDS))
    + r')(?P<ordinal>TH)?|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<other>.)',
    re.IGNORECASE | re.DOTALL,
)
#: Fields that are read but do not influence the result.
_UNREAD = frozenset({"Q", "D", "DAY", "DY", "CC"})


@dataclass(frozen=True)
class _Element:
    """An element of a format: a field (`word`, in capitals), a separator (`text` of one character), or text that
    matches as many characters of input.
    """

    word: str = ""
    text: str = ""
    ordinal: bool = False
    filled: bool = False


def _elements(form: str) -> Iterator[_Element]:
    for found in _ELEMENT.finditer(form):
        if found["word"]:
            yield _Element(
                found["word"].upper(), ordinal=bool(found["ordinal"]), filled=bool(found["fill"])
            )
        elif found["quoted"] is not None:
            yield from (_Element(text="x") for _ in re.sub(r"\\(.)", r"\1", found["quoted"]))
        else:
            yield _Element(text=found["other"])


def _pattern(form: str, position: int | None) -> tuple[str, list[str]]:
    """The format as a regular expression, with the fields of its groups in order."""
    elements = list(_elements(form))
    out, words, separators = ["^"], [], 0
    for element, following in zip(elements, [*elements[1:], _Element(text=" ")], strict=True):
        if element.word in _REFUSED:
            raise Unsupported(
                f"reading {element.word} by to_date and to_timestamp is not supported",
                position=position,
            )
        if not element.word and not element.text.isalnum():
            separators += 1
            continue
        if not element.word and not separators:
            out.append(".")
            continue
        # A sign before a zone's hours belongs to them.
        signs = "+-" if element.word == "TZH" else ""
        out.append(rf"\s*(?:[^a-zA-Z0-9\s{signs}]\s*){{0,{separators}}}")
        separators = 0
        if not element.word:
            out.append(".")
            continue
        if element.word in words:
            raise InvalidParameter(
                f'conflicting values for "{element.word}" field in formatting string',
                detail="This value contradicts a previous setting for the same field type.",
                position=position,
                sqlstate="22007",
            )
        words.append(element.word)
        if element.word in _NAMES:
            out.append(f"({_NAMES[element.word]})")
            continue
        sign = "[-+]?" if element.word == "TZH" else ""
        close = following.word in _NUMBERS and not element.filled
        digits = f"{{1,{_NUMBERS[element.word]}}}" if close else "+"
        out.append(f"({sign}[0-9]{digits})" + ("(?:st|nd|rd|th)?" if element.ordinal else ""))
    return "".join(out), words


def _whole(place: int) -> str:
    return f"({_MATCH}[{place}])::integer"


#: The match that the groups are taken from.
_MATCH = "(regexp_match($1, $2, 'i'))"


def _month(place: int) -> str:
    names = ", ".join(f"'{name[:3]}'" for name in _MONTHS)
    return f"array_position(ARRAY[{names}], left(lower({_MATCH}[{place}]), 3))"


def _year(read: dict[str, int]) -> str:
    """The year; one with fewer than four digits is the one closest to 2020."""
    word = next((word for word in ("YYYY", "YYY", "YY", "Y") if word in read), None)
    if word is None:
        return "0"
    year = _whole(read[word])
    if word != "YYYY":
        year = f"""(CASE WHEN length({_MATCH}[{read[word]}]) >= 4 THEN {year} WHEN {year} < 70 THEN {year} + 2000
            WHEN {year} < 100 THEN {year} + 1900 WHEN {year} < 520 THEN {year} + 2000 ELSE {year} + 1000 END)"""
    era = next((word for word in ("BC", "AD", "B.C.", "A.D.") if word in read), None)
    if era is None:
        return year
    return f"(CASE WHEN lower({_MATCH}[{read[era]}]) LIKE 'b%' THEN 1 - {year} ELSE {year} END)"


def _date(read: dict[str, int]) -> str:
    if "J" in read:
        return f"(DATE '1970-01-01' + ({_whole(read['J'])} - 2440588))"
    year = _year(read)
    # Astronomical years, in which the year before 1 is 0.
    named = f"(CASE WHEN {year} <= 0 THEN {year} - 1 ELSE {year} END)"
    if "DDD" in read and not {"DD", "MM", "MON", "MONTH"} & set(read):
        return f"(make_date({named}, 1, 1) + ({_whole(read['DDD'])} - 1))"
    month = next((_month(read[word]) for word in ("MONTH", "MON") if word in read), None)
    if month is None:
        month = _whole(read["MM"]) if "MM" in read else "1"
    day = _whole(read["DD"]) if "DD" in read else "1"
    return f"make_date({named}, {month}, {day})"


def _time(read: dict[str, int]) -> str:
    """The time of day as an interval."""
    parts = ["INTERVAL '0'"]
    half = next((word for word in ("AM", "PM", "A.M.", "P.M.") if word in read), None)
    short = next((word for word in ("HH12", "HH") if word in read), None)
    if short is not None:
        hour = _whole(read[short])
        wrong = f"""mz_internal.mz_raise_if({hour} NOT BETWEEN 1 AND 12,
            'hour "' || {_MATCH}[{read[short]}] || '" is invalid for the 12-hour clock')"""
        later = (
            "0"
            if half is None
            else f"CASE WHEN lower({_MATCH}[{read[half]}]) LIKE 'p%' THEN 12 ELSE 0 END"
        )
        parts.append(
            f"(CASE WHEN {wrong} THEN NULL ELSE {hour} % 12 + {later} END) * INTERVAL '1 hour'"
        )
    elif "HH24" in read:
        parts.append(_bounded("HH24", read, 24, "hour"))
    for word, bound, unit in (
        ("MI", 60, "minute"),
        ("SS", 60, "second"),
        ("SSSS", 86400, "second"),
        ("SSSSS", 86400, "second"),
    ):
        if word in read:
            parts.append(_bounded(word, read, bound, unit))
    for word in ("MS", "US", *(f"FF{n}" for n in range(1, 7))):
        if word in read:
            parts.append(
                f"('0.' || {_MATCH}[{read[word]}])::double precision * INTERVAL '1 second'"
            )
    return " + ".join(parts)


def _bounded(word: str, read: dict[str, int], bound: int, unit: str) -> str:
    value = _whole(read[word])
    wrong = f"mz_internal.mz_raise_if({value} >= {bound}, 'date/time field value out of range: \"' || $1 || '\"')"
    return f"(CASE WHEN {wrong} THEN NULL ELSE {value} END) * INTERVAL '1 {unit}'"


def _zone(read: dict[str, int]) -> str:
    """The offset from UTC."""
    if "TZH" not in read:
        return "INTERVAL '0'"
    hours = _MATCH + f"[{read['TZH']}]"
    minutes = _whole(read["TZM"]) if "TZM" in read else "0"
    sign = f"(CASE WHEN {hours} LIKE '-%' THEN -1 ELSE 1 END)"
    return f"({hours}::integer * INTERVAL '1 hour' + {sign} * {minutes} * INTERVAL '1 minute')"


def datetime_by_format(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call of either function with a text and a format.

    Raises:
        Unsupported: the format is not a constant, or has an unsupported field.
        InvalidParameter: it has a field twice (22007).
    """
    text, form = node.expressions
    position = position_of(node)
    if not isinstance(form, exp.Literal) or not form.is_string:
        raise Unsupported(
            f"{function_name(node)} with a format that is not a literal is not supported",
            position=position,
        )
    pattern, words = _pattern(form.name, position)
    read = {word: place for place, word in enumerate(words, start=1) if word not in _UNREAD}
    value = _date(read)
    if function_name(node) == "to_timestamp":
        value = f"(({value}::timestamp + ({_time(read)})) AT TIME ZONE 'UTC' - {_zone(read)})"
    missed = f"""mz_internal.mz_raise_if({_MATCH} IS NULL,
        'invalid value "' || $1 || '" for "{form.name.replace("'", "''")}"')"""
    sql = f"CASE WHEN $1 IS NULL OR {missed} THEN NULL ELSE {value} END"
    typed = exp.Cast(this=text.copy(), to=exp.DataType.build("text"))
    return ctx.plan(filled(sql, [typed, exp.Literal.string(pattern)]))


__all__ = ["datetime_by_format"]
