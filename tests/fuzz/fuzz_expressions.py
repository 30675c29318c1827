"""Random expressions of every type, over columns and constants.

Promise: an expression fails in no row, by construction: it carries a bound of its values, and sums and products are made only where the
bound fits the type; divisors are never zero. Engines differ in when they evaluate what fails, so expressions that may fail are made
apart (`Risky`), where the answer does not depend on that.

Left out on purpose, since the answers differ for a known reason: the letters of other alphabets in upper and lower case (PostgreSQL runs
with the locale C), numerics and floats as text (Materialize prints no trailing zeros), comparisons of intervals (months first).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from fuzz_rare import RareExpressions
from fuzz_schema import COMMON, KINDS, LIMITS, TAME, UNORDERED, cast_name, literal, random_kind
from fuzz_tree import Node, clause, expr, listed, text

INTEGERS = ("smallint", "integer", "bigint")
NUMBERS = (*INTEGERS, "numeric", "double")
_TAME = {"date": 100.0, "timestamp": 100.0}


@dataclass(frozen=True)
class Ref:
    """A column that an expression may read."""

    sql: Node
    kind: str
    bound: float


@dataclass(frozen=True)
class Scope:
    """What an expression may read: columns of its own query, and those of the queries around."""

    own: tuple[Ref, ...] = ()
    outer: tuple[Ref, ...] = ()
    subqueries: bool = True

    def of(self, kind: str) -> list[Ref]:
        """The columns of a type, the query's own more often."""
        return [r for r in (*self.own, *self.own, *self.outer) if r.kind == kind]


class Subqueries(Protocol):
    """Who makes the queries inside of expressions."""

    def query(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Node:
        """Any number of rows."""

    def one_row(self, kind: str, outer: tuple[Ref, ...], depth: int) -> Node:
        """At most one row of one column."""

    def sorted_column(self, kind: str, outer: tuple[Ref, ...], depth: int) -> Node:
        """Any number of rows of one column, in a total order."""


class Expressions(RareExpressions):
    """Expressions from a generator of random numbers."""

    def __init__(self, rng: random.Random, subqueries: Subqueries, *, rare: bool = True) -> None:
        self.rng = rng
        self.rare = rare
        self.numbers = (*NUMBERS, "real") if rare else NUMBERS
        self.subqueries = subqueries
        self._makers: dict[str, list[Callable[[Scope, int], Node]]] = {
            "boolean": [self._comparison] * 4 + [self._logic] * 3 + [self._null_test] * 2
            + [self._between, self._in_list, self._truth, self._like, self._distinct, self._text_test, self._rows_compared]
            + [self._exists, self._in_query, self._quantified],
            "text": [self._text_function] * 6 + [self._text_of, self._concat],
            "date": [self._date],
            "timestamp": [self._timestamp],
        }  # fmt: skip
        for kind in INTEGERS:
            self._makers[kind] = [
                *([lambda s, d, k=kind: self._arithmetic(k, s, d)] * 4),
                lambda s, d, k=kind: self._integer_of(k, s, d),
                lambda s, d, k=kind: self._division(k, s, d),
                lambda s, d, k=kind: self._bits(k, s, d),
            ]
        self._makers["integer"] += [self._measure] * 2
        self._makers["numeric"] = [self._numeric] * 4
        self._makers["double"] = [self._double] * 4
        for kind, makers in self.rare_makers().items() if rare else ():
            self._makers[kind] = [*self._makers.get(kind, []), *makers]
        for kind in KINDS if rare else COMMON:
            self._makers.setdefault(kind, [])
            self._makers[kind] += [lambda s, d, k=kind: self._choice(k, s, d)] * 2
            self._makers[kind].append(lambda s, d, k=kind: self._scalar_query(k, s, d))

    # --- any type ---------------------------------------------------------------------------------

    def value(self, kind: str, scope: Scope, depth: int, limit: float = math.inf) -> Node:
        """An expression of a type, none of whose values is further from zero than the limit."""
        if depth > 0 and self.rng.random() < 0.6:
            made = self.rng.choice(self._makers[kind])(scope, depth - 1)
            if made.bound <= limit:
                return made
        return self.leaf(kind, scope, limit)

    def leaf(self, kind: str, scope: Scope, limit: float = math.inf) -> Node:
        """A column or a constant."""
        columns = [ref for ref in scope.of(kind) if ref.bound <= limit]
        if columns and self.rng.random() < 0.8:
            ref = self.rng.choice(columns)
            return expr(kind, ref.sql, bound=ref.bound)
        if self.rng.random() < 0.04:
            return expr(kind, f"(NULL::{cast_name(kind)})", bound=0)
        value = self.rng.choice(TAME[kind])
        bound = {"boolean": 1.0, "text": 10.0}.get(kind, 100.5)
        return expr(kind, literal(value, kind), bound=bound)

    def predicate(self, scope: Scope, depth: int = 2) -> Node:
        """A condition, a comparison rather than a constant."""
        return self.rng.choice(self._makers["boolean"])(scope, depth)

    def comparable(self, kind: str) -> str:
        """A type to compare one with: itself, or another number."""
        if kind in self.numbers and self.rng.random() < 0.2:
            return self.rng.choice(self.numbers)
        return kind

    def _kind(self, *, ordered: bool = True) -> str:
        return random_kind(self.rng, ordered=ordered, rare=self.rare)

    def _choice(self, kind: str, scope: Scope, depth: int) -> Node:
        """CASE, coalesce and their like."""
        a, b = self.value(kind, scope, depth), self.value(kind, scope, depth)
        bound = max(a.bound, b.bound)
        match self.rng.randrange(6):
            case 0:
                return expr(kind, "coalesce(", a, ", ", b, ")", bound=bound)
            case 1:
                return expr(kind, "nullif(", a, ", ", b, ")", bound=a.bound)
            case 2 if kind != "boolean" and kind not in UNORDERED:
                name = self.rng.choice(["greatest", "least"])
                return expr(kind, f"{name}(", a, ", ", b, ")", bound=bound)
            case 3:
                other = self._kind()
                when = self.value(other, scope, depth), self.value(other, scope, depth)
                made = (
                    "CASE ",
                    when[0],
                    " WHEN ",
                    when[1],
                    " THEN ",
                    a,
                    clause(" ELSE ", b),
                    " END",
                )
                return expr(kind, *made, bound=bound)
            case _:
                test = self.predicate(scope, depth)
                made = ("CASE WHEN ", test, " THEN ", a, clause(" ELSE ", b), " END")
                return expr(kind, *made, bound=bound)

    def _scalar_query(self, kind: str, scope: Scope, depth: int) -> Node:
        if not scope.subqueries or depth <= 0:
            return self.leaf(kind, scope)
        outer = (*scope.own, *scope.outer)
        return expr(kind, "(", self.subqueries.one_row(kind, outer, depth), ")")

    # --- numbers ----------------------------------------------------------------------------------

    def _arithmetic(self, kind: str, scope: Scope, depth: int) -> Node:
        a = self.value(kind, scope, depth)
        match self.rng.randrange(5):
            case 0:
                made = expr(kind, "(- ", a, ")", bound=a.bound + 1)
            case 1:
                made = expr(kind, "abs(", a, ")", bound=a.bound + 1)
            case 2:
                b = self.value(kind, scope, depth)
                made = expr(kind, "(", a, " * ", b, ")", bound=a.bound * b.bound + 1)
            case _:
                b = self.value(kind, scope, depth)
                sign = self.rng.choice(["+", "-"])
                made = expr(kind, "(", a, f" {sign} ", b, ")", bound=a.bound + b.bound + 1)
        return made if made.bound < LIMITS[kind] else a

    def _division(self, kind: str, scope: Scope, depth: int) -> Node:
        a = self.value(kind, scope, depth, LIMITS[kind] - 1)
        b = self.value(kind, scope, depth)
        operator = self.rng.choice(["/", "%"])
        zero = expr(kind, literal("0", kind))
        return expr(
            kind, "(", a, f" {operator} ", text("nullif(", b, ", ", zero, ")"), ")", bound=a.bound
        )

    def _bits(self, kind: str, scope: Scope, depth: int) -> Node:
        a, b = self.value(kind, scope, depth), self.value(kind, scope, depth)
        operator = self.rng.choice(["&", "|", "#"])
        bound = min(2 * max(a.bound, b.bound) + 2, LIMITS[kind])
        return expr(kind, "(", a, f" {operator} ", b, ")", bound=bound)

    def _integer_of(self, kind: str, scope: Scope, depth: int) -> Node:
        """A cast of another number."""
        other = self.rng.choice([k for k in (*self.numbers, "boolean") if k != kind])
        if other == "boolean":
            if kind != "integer":
                return self.leaf(kind, scope)
            return expr(kind, "(", self.value("boolean", scope, depth), ")::integer", bound=1)
        limit = LIMITS[kind] - 1
        if other in ("double", "real"):
            limit = min(limit, 1e6)
        a = self.value(other, scope, depth, limit)
        return expr(kind, "(", a, f")::{kind}", bound=a.bound + 1)

    def _measure(self, scope: Scope, depth: int) -> Node:
        """An integer that something else is measured by."""
        match self.rng.randrange(5):
            case 0:
                name = self.rng.choice(
                    ["length", "char_length", "octet_length", "ascii", "bit_length"]
                )
                a = self.value("text", scope, depth)
                return expr("integer", f"{name}(", a, ")", bound=max(2e5, 32 * a.bound))
            case 1:
                a, b = self.value("text", scope, depth), self.value("text", scope, depth)
                return expr("integer", "position(", a, " IN ", b, ")", bound=b.bound + 1)
            case 2:
                a, b = self.value("date", scope, depth), self.value("date", scope, depth)
                return expr("integer", "(", a, " - ", b, ")", bound=4e6)
            case _:
                of = self.rng.choice(["date", "timestamp"])
                units = ["year", "month", "day", "dow", "doy", "quarter", "isodow", "week"]
                unit = self.rng.choice(units)
                a = self.value(of, scope, depth)
                return expr("integer", f"extract({unit} FROM ", a, ")::integer", bound=10_000)

    def _numeric(self, scope: Scope, depth: int) -> Node:
        a = self.value("numeric", scope, depth, 1e14)
        other = self.rng.choice(INTEGERS)
        match self.rng.randrange(9):
            case 0:
                b = self.value("numeric", scope, depth, 1e14)
                sign = self.rng.choice(["+", "-"])
                return expr("numeric", "(", a, f" {sign} ", b, ")", bound=a.bound + b.bound)
            case 1:
                b = self.value(other, scope, depth, 1000)
                made = expr("numeric", "(", a, " * ", b, ")", bound=a.bound * b.bound)
                return made if made.bound < 1e14 else a
            case 2:
                digits = self.rng.choice(["", ", 0", ", 1", ", -1", ", 3"])
                return expr("numeric", "round(", a, f"{digits})", bound=a.bound + 10)
            case 3:
                name = self.rng.choice(["abs", "floor", "ceil", "-", "trunc"])
                return expr("numeric", f"{name}(", a, ")", bound=a.bound + 1)
            case 4:
                b = self.value("numeric", scope, depth, 1e6)
                return expr("numeric", "round(", a, " / nullif(", b, ", 0), 3)", bound=math.inf)
            case 5:
                b = self.value("numeric", scope, depth, 1e6)
                return expr("numeric", "(", a, " % nullif(", b, ", 0))", bound=a.bound)
            case 6:
                return expr("numeric", "(", a, ")::numeric(20, 1)", bound=a.bound + 1)
            case _:
                b = self.value(other, scope, depth)
                return expr("numeric", "(", b, ")::numeric", bound=b.bound)

    def _double(self, scope: Scope, depth: int) -> Node:
        a = self.value("double", scope, depth, 1e6)
        match self.rng.randrange(6):
            case 0:
                b = self.value("double", scope, depth, 1e6)
                sign = self.rng.choice(["+", "-"])
                return expr("double", "(", a, f" {sign} ", b, ")", bound=a.bound + b.bound)
            case 1:
                b = self.value("double", scope, depth, 1e6)
                return expr("double", "(", a, " * ", b, ")", bound=a.bound * b.bound)
            case 2:
                name = self.rng.choice(["abs", "floor", "ceil", "-", "round", "trunc"])
                return expr("double", f"{name}(", a, ")", bound=a.bound + 1)
            case 3:
                return expr("double", "sqrt(abs(", a, "))", bound=a.bound + 1)
            case _:
                other = self.rng.choice([*INTEGERS, "numeric"])
                b = self.value(other, scope, depth)
                return expr("double", "(", b, ")::double precision", bound=b.bound)

    # --- texts and times --------------------------------------------------------------------------

    def _text_function(self, scope: Scope, depth: int) -> Node:
        a, b = self.value("text", scope, depth), self.value("text", scope, depth)
        number = self.rng.randint(-2, 5)
        count = self.rng.randint(0, 4)
        longer = a.bound + b.bound
        match self.rng.randrange(11):
            case 0:
                name = self.rng.choice(
                    ["upper", "lower", "btrim", "ltrim", "rtrim", "reverse", "initcap"]
                )
                return expr("text", f"{name}(", a, ")", bound=a.bound)
            case 1:
                return expr(
                    "text", "substring(", a, f", {number}", clause(f", {count}"), ")", bound=a.bound
                )
            case 2:
                name = self.rng.choice(["left", "right"])
                return expr("text", f"{name}(", a, f", {number})", bound=a.bound)
            case 3 if longer < 100:
                return expr("text", "replace(", a, ", ", b, ", 'x')", bound=longer)
            case 4:
                name = self.rng.choice(["lpad", "rpad"])
                return expr("text", f"{name}(", a, f", {count + 1}", clause(", ", b), ")", bound=10)
            case 5:
                return expr("text", "md5(", a, ")", bound=32)
            case 6:
                return expr("text", "split_part(", a, ", ", b, f", {count + 1})", bound=a.bound)
            case 7:
                return expr("text", "translate(", a, ", 'ab', 'ba')", bound=a.bound)
            case 8:
                return expr(
                    "text",
                    "regexp_replace(",
                    a,
                    ", '[a-b]+', '#'",
                    clause(", 'g'"),
                    ")",
                    bound=5 * a.bound + 5,
                )
            case 9:
                name = self.rng.choice(["btrim", "ltrim", "rtrim"])
                return expr("text", f"{name}(", a, ", 'ab ')", bound=a.bound)
            case _:
                return a

    def _concat(self, scope: Scope, depth: int) -> Node:
        a, b = self.value("text", scope, depth), self.value("text", scope, depth)
        if a.bound + b.bound > 200:
            return a
        form = self.rng.choice(
            [("(", " || ", ")"), ("concat(", ", ", ")"), ("concat_ws('-', ", ", ", ")")]
        )
        return expr("text", form[0], a, form[1], b, form[2], bound=a.bound + b.bound + 1)

    def _text_of(self, scope: Scope, depth: int) -> Node:
        kind = self.rng.choice([*INTEGERS, "boolean", "date", "timestamp"])
        return expr("text", "(", self.value(kind, scope, depth), ")::text", bound=30)

    def _date(self, scope: Scope, depth: int) -> Node:
        if self.rng.random() < 0.5:
            return expr("date", "(", self.value("timestamp", scope, depth), ")::date")
        a = self.value("date", scope, depth, _TAME["date"])
        interval = self.rng.choice(["1 day", "-1 month", "1 year 2 days", "36 hours"])
        return expr("date", "(", a, f" + INTERVAL '{interval}')::date", bound=a.bound)

    def _timestamp(self, scope: Scope, depth: int) -> Node:
        match self.rng.randrange(4):
            case 0:
                return expr("timestamp", "(", self.value("date", scope, depth), ")::timestamp")
            case 1:
                unit = self.rng.choice(
                    ["year", "quarter", "month", "week", "day", "hour", "second"]
                )
                a = self.value("timestamp", scope, depth, _TAME["timestamp"])
                return expr("timestamp", f"date_trunc('{unit}', ", a, ")", bound=a.bound)
            case _:
                kind = self.rng.choice(["date", "timestamp"])
                a = self.value(kind, scope, depth, _TAME[kind])
                sign = self.rng.choice(["+", "-"])
                interval = self.rng.choice(["1 month", "1 day 2 hours", "-90 minutes", "13 months"])
                return expr("timestamp", "(", a, f" {sign} INTERVAL '{interval}')", bound=a.bound)

    # --- conditions -------------------------------------------------------------------------------

    def _pair(self, scope: Scope, depth: int) -> tuple[Node, Node]:
        kind = self._kind()
        other = self.comparable(kind)
        return self.value(kind, scope, depth), self.value(other, scope, depth)

    def _comparison(self, scope: Scope, depth: int) -> Node:
        a, b = self._pair(scope, depth)
        operator = self.rng.choice(["=", "=", "<>", "<", "<=", ">", ">="])
        return expr("boolean", "(", a, f" {operator} ", b, ")", bound=1)

    def _logic(self, scope: Scope, depth: int) -> Node:
        a = self.predicate(scope, depth - 1) if depth > 0 else self._comparison(scope, 0)
        if self.rng.random() < 0.25:
            return expr("boolean", "(NOT ", a, ")", bound=1)
        b = self.predicate(scope, depth - 1) if depth > 0 else self._null_test(scope, 0)
        return expr("boolean", "(", a, self.rng.choice([" AND ", " OR "]), b, ")", bound=1)

    def _null_test(self, scope: Scope, depth: int) -> Node:
        a = self.value(self._kind(ordered=False), scope, depth)
        return expr("boolean", "(", a, self.rng.choice([" IS NULL)", " IS NOT NULL)"]), bound=1)

    def _truth(self, scope: Scope, depth: int) -> Node:
        test = self.rng.choice(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"])
        return expr("boolean", "(", self.value("boolean", scope, depth), f" IS {test})", bound=1)

    def _distinct(self, scope: Scope, depth: int) -> Node:
        a, b = self._pair(scope, depth)
        word = self.rng.choice(["", "NOT "])
        return expr("boolean", "(", a, f" IS {word}DISTINCT FROM ", b, ")", bound=1)

    def _between(self, scope: Scope, depth: int) -> Node:
        kind = self._kind()
        a, b, c = (self.value(kind, scope, depth) for _ in range(3))
        word = self.rng.choice(["", "NOT "])
        return expr("boolean", "(", a, f" {word}BETWEEN ", b, " AND ", c, ")", bound=1)

    def _in_list(self, scope: Scope, depth: int) -> Node:
        kind = self._kind()
        a = self.value(kind, scope, depth)
        items = [self.value(kind, scope, 0) for _ in range(self.rng.randint(1, 4))]
        word = self.rng.choice(["", "NOT "])
        return expr("boolean", "(", a, f" {word}IN (", listed(", ", items), "))", bound=1)

    def _like(self, scope: Scope, depth: int) -> Node:
        a = self.value("text", scope, depth)
        patterns = ["%", "a%", "%b", "_", "a_", "%a%", "\\%%", "", "__%", "A%"]
        pattern = f"'{self.rng.choice(patterns)}'"
        word = self.rng.choice(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
        return expr("boolean", "(", a, f" {word} {pattern})", bound=1)

    def _text_test(self, scope: Scope, depth: int) -> Node:
        a, b = self.value("text", scope, depth), self.value("text", scope, depth)
        if self.rng.random() < 0.5:
            return expr("boolean", "starts_with(", a, ", ", b, ")", bound=1)
        pattern = self.rng.choice(["^a", "b$", "[ab]+", "^$", "a|b", "\\d"])
        operator = self.rng.choice(["~", "!~", "~*", "!~*"])
        return expr("boolean", "(", a, f" {operator} '{pattern}')", bound=1)

    def _rows_compared(self, scope: Scope, depth: int) -> Node:
        kinds = [self._kind(), self._kind()]
        left = [self.value(kind, scope, min(depth, 1)) for kind in kinds]
        right = [self.value(kind, scope, min(depth, 1)) for kind in kinds]
        operator = self.rng.choice(["=", "<>", "<", ">="])
        made = ("((", left[0], ", ", left[1], f") {operator} (", right[0], ", ", right[1], "))")
        return expr("boolean", *made, bound=1)

    def _outer(self, scope: Scope) -> tuple[Ref, ...]:
        return (*scope.own, *scope.outer)

    def _exists(self, scope: Scope, depth: int) -> Node:
        if not scope.subqueries or depth <= 0:
            return self._null_test(scope, depth)
        made = self.subqueries.query((self._kind(),), self._outer(scope), depth)
        # NOT binds looser than the IS that may follow.
        opened, closed = self.rng.choice([("EXISTS (", ")"), ("(NOT EXISTS (", "))")])
        return expr("boolean", opened, made, closed, bound=1)

    def _in_query(self, scope: Scope, depth: int) -> Node:
        if not scope.subqueries or depth <= 0:
            return self._comparison(scope, depth)
        word = self.rng.choice([" IN (", " NOT IN ("])
        kinds = tuple(self._kind() for _ in range(self.rng.choice([1, 1, 1, 2])))
        left = [self.value(kind, scope, depth - 1) for kind in kinds]
        made = self.subqueries.query(kinds, self._outer(scope), depth)
        front = left[0] if len(left) == 1 else text("(", left[0], ", ", left[1], ")")
        return expr("boolean", "(", front, word, made, "))", bound=1)

    def _quantified(self, scope: Scope, depth: int) -> Node:
        if not scope.subqueries or depth <= 0:
            return self._comparison(scope, depth)
        kind = self._kind()
        a = self.value(kind, scope, depth - 1)
        made = self.subqueries.query((kind,), self._outer(scope), depth)
        operator = self.rng.choice(["=", "<>", "<", "<=", ">", ">="])
        word = self.rng.choice(["ANY", "ALL", "SOME"])
        return expr("boolean", "(", a, f" {operator} {word} (", made, "))", bound=1)


def without_subqueries(scope: Scope) -> Scope:
    """The same columns, where no query may stand."""
    return replace(scope, subqueries=False)
