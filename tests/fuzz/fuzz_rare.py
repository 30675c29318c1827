"""Expressions of and over the types that stand in one column of five: times of day, instants, documents, arrays, ranges and their like.

Promise: that of `fuzz_expressions`: no expression fails. Left out on purpose: the texts of intervals and of documents in documents, which
Materialize writes in another way; `||` and `-` of documents, which fail on scalars in PostgreSQL; what has another name there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from fuzz_tree import Node, clause, expr, listed, text

if TYPE_CHECKING:
    from fuzz_expressions import Scope, Subqueries

#: What makes an expression of some depth.
Maker = Callable[["Scope", int], Node]
_INTERVALS = ["1 day", "-90 minutes", "1 month", "13 months", "2 days 3 hours"]


class RareExpressions:
    """What `Expressions` makes of the rare types, and of common types over them."""

    rng: random.Random
    subqueries: Subqueries
    value: Callable[..., Node]

    def rare_makers(self) -> dict[str, list[Maker]]:
        """What makes an expression, by its type."""
        return {
            "real": [self._real] * 3,
            "time": [self._time] * 2,
            "timestamptz": [self._instant] * 3,
            "uuid": [self._uuid],
            "bytea": [self._bytes],
            "jsonb": [self._document] * 3,
            "integers": [self._integers] * 3,
            "texts": [self._texts] * 2,
            "range": [self._range] * 3,
            "boolean": [self._in_rare] * 2,
            "text": [self._text_of_rare],
            "integer": [self._integer_of_rare],
            "timestamp": [self._timestamp_of_rare],
            "date": [self._date_of_rare],
            "numeric": [self._epoch],
            "double": [self._double_of_real],
        }

    # --- of the rare types ------------------------------------------------------------------------

    def _real(self, scope: Scope, depth: int) -> Node:
        a = self.value("real", scope, depth, 1e6)
        match self.rng.randrange(6):
            case 0 | 1:
                b = self.value("real", scope, depth, 1e6)
                sign = self.rng.choice(["+", "-"])
                return expr("real", "(", a, f" {sign} ", b, ")", bound=a.bound + b.bound)
            case 2:
                b = self.value("real", scope, depth, 1e6)
                return expr("real", "(", a, " * ", b, ")", bound=a.bound * b.bound)
            case 3:
                return expr("real", self.rng.choice(["abs(", "(- "]), a, ")", bound=a.bound)
            case _:
                other = self.rng.choice(["smallint", "integer", "double"])
                b = self.value(other, scope, depth, 1e6)
                return expr("real", "(", b, ")::real", bound=b.bound)

    def _double_of_real(self, scope: Scope, depth: int) -> Node:
        a = self.value("real", scope, depth)
        return expr("double", "(", a, ")::double precision", bound=a.bound)

    def _time(self, scope: Scope, depth: int) -> Node:
        match self.rng.randrange(4):
            case 0:
                kind = self.rng.choice(["timestamp", "timestamptz"])
                return expr("time", "(", self.value(kind, scope, depth), ")::time")
            case 1:
                return expr("time", "((", self.value("time", scope, depth), ")::text)::time")
            case _:
                sign = self.rng.choice(["+", "-"])
                a, by = self.value("time", scope, depth), self.rng.choice(_INTERVALS)
                return expr("time", "(", a, f" {sign} INTERVAL '{by}')")

    def _instant(self, scope: Scope, depth: int) -> Node:
        match self.rng.randrange(5):
            case 0:
                a = self.value("timestamp", scope, depth, 100)
                zone = self.rng.choice(["UTC", "Asia/Tokyo", "+02"])
                return expr("timestamptz", "(", a, f" AT TIME ZONE '{zone}')", bound=a.bound)
            case 1:
                kind = self.rng.choice(["date", "timestamp"])
                a = self.value(kind, scope, depth, 100)
                return expr("timestamptz", "(", a, ")::timestamptz", bound=a.bound)
            case 2:
                unit = self.rng.choice(["year", "month", "week", "hour"])
                a = self.value("timestamptz", scope, depth, 100)
                return expr("timestamptz", f"date_trunc('{unit}', ", a, ")", bound=a.bound)
            case _:
                sign = self.rng.choice(["+", "-"])
                a, by = self.value("timestamptz", scope, depth, 100), self.rng.choice(_INTERVALS)
                return expr("timestamptz", "(", a, f" {sign} INTERVAL '{by}')", bound=a.bound)

    def _uuid(self, scope: Scope, depth: int) -> Node:
        if self.rng.random() < 0.5:
            return expr("uuid", "((", self.value("uuid", scope, depth), ")::text)::uuid")
        return expr("uuid", "(md5(", self.value("text", scope, depth), "))::uuid")

    def _bytes(self, scope: Scope, depth: int) -> Node:
        a = self.value("bytea", scope, depth)
        match self.rng.randrange(3):
            case 0:
                form = self.rng.choice(["hex", "base64"])
                return expr("bytea", "decode(encode(", a, f", '{form}'), '{form}')")
            case 1:
                return expr("bytea", "sha256(", a, ")")
            case _:
                return expr("bytea", "decode(md5(", self.value("text", scope, depth), "), 'hex')")

    def _document(self, scope: Scope, depth: int) -> Node:
        match self.rng.randrange(5):
            case 0:
                a = self.value("jsonb", scope, depth)
                step = self.rng.choice(["-> 'a'", "-> 0", "-> -1", "#> '{a}'", "-> 'b'"])
                return expr("jsonb", "(", a, f" {step})")
            case 1:
                kind = self.rng.choice(["integer", "text", "boolean", "bigint"])
                made = self.value(kind, scope, depth)
                # PostgreSQL has no type for a bare constant.
                typed = text("(", made, ")::text") if kind == "text" else made
                return expr("jsonb", "to_jsonb(", typed, ")")
            case 2:
                items = [self.value(kind, scope, depth) for kind in ("integer", "text", "boolean")]
                self.rng.shuffle(items)
                return expr("jsonb", "jsonb_build_array(", listed(", ", items), ")")
            case _:
                a, b = self.value("integer", scope, depth), self.value("text", scope, depth)
                return expr("jsonb", "jsonb_build_object('a', ", a, ", 'b', ", b, ")")

    def _integers(self, scope: Scope, depth: int) -> Node:
        a, b = (self.value("integers", scope, depth, 1e6) for _ in range(2))
        i, j = (self.value("integer", scope, depth, 1e6) for _ in range(2))
        match self.rng.randrange(7):
            case 0:
                return expr("integers", "(", a, " || ", b, ")", bound=max(a.bound, b.bound))
            case 1:
                return expr(
                    "integers", "array_append(", a, ", ", i, ")", bound=max(a.bound, i.bound)
                )
            case 2:
                return expr("integers", "array_remove(", a, ", ", i, ")", bound=a.bound)
            case 3 if scope.subqueries and depth > 0:
                outer = (*scope.own, *scope.outer)
                made = self.subqueries.sorted_column("integer", outer, depth)
                return expr("integers", "ARRAY(", made, ")")
            case 4:
                return expr(
                    "integers", "array_prepend(", i, ", ", a, ")", bound=max(a.bound, i.bound)
                )
            case _:
                return expr("integers", "ARRAY[", i, ", ", j, "]", bound=max(i.bound, j.bound))

    def _texts(self, scope: Scope, depth: int) -> Node:
        a, b = self.value("text", scope, depth), self.value("text", scope, depth)
        match self.rng.randrange(4):
            case 0:
                return expr("texts", "string_to_array(", a, ", ", b, ")")
            case 1:
                return expr("texts", "regexp_split_to_array(", a, ", '[ b]')")
            case 2:
                c, d = self.value("texts", scope, depth), self.value("texts", scope, depth)
                return expr("texts", "(", c, " || ", d, ")")
            case _:
                return expr("texts", "ARRAY[", a, ", (", b, ")::text]")

    def _range(self, scope: Scope, depth: int) -> Node:
        if self.rng.random() < 0.4:
            a, b = self.value("range", scope, depth), self.value("range", scope, depth)
            return expr("range", "(", a, " * ", b, ")", bound=max(a.bound, b.bound))
        a, b = (self.value("integer", scope, depth, 1e6) for _ in range(2))
        bounds = clause(f", '{self.rng.choice(['[]', '()', '(]', '[)'])}'")
        made = ("int4range(least(", a, ", ", b, "), greatest(", a, ", ", b, ")", bounds, ")")
        return expr("range", *made, bound=max(a.bound, b.bound) + 1)

    # --- of common types over them ----------------------------------------------------------------

    def _in_rare(self, scope: Scope, depth: int) -> Node:
        rng = self.rng
        match rng.randrange(6):
            case 0:
                i, a = self.value("integer", scope, depth), self.value("integers", scope, depth)
                test = rng.choice(["= ANY", "<> ALL", "< ANY", ">= ALL"])
                # Of an array that is NULL, Materialize compares with none of its elements.
                return expr("boolean", "(", i, f" {test} (coalesce(", a, ", '{}')))", bound=1)
            case 1:
                kind = rng.choice(["integers", "texts"])
                a, b = self.value(kind, scope, depth), self.value(kind, scope, depth)
                return expr(
                    "boolean", "(", a, f" {rng.choice(['@>', '<@', '&&'])} ", b, ")", bound=1
                )
            case 2:
                a, i = self.value("range", scope, depth), self.value("integer", scope, depth)
                return expr("boolean", "(", a, " @> ", i, ")", bound=1)
            case 3:
                a, b = self.value("range", scope, depth), self.value("range", scope, depth)
                test = rng.choice(["&&", "@>", "<@", "<<", ">>", "&<", "&>", "-|-"])
                return expr("boolean", "(", a, f" {test} ", b, ")", bound=1)
            case 4:
                a = self.value("range", scope, depth)
                test = rng.choice(["isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf"])
                return expr("boolean", f"{test}(", a, ")", bound=1)
            case _:
                a = self.value("jsonb", scope, depth)
                if rng.random() < 0.4:
                    return expr("boolean", "(", a, f" ? '{rng.choice('ab1')}')", bound=1)
                b = self.value("jsonb", scope, depth)
                test = rng.choice(["@>", "<@", "=", "<>"])
                return expr("boolean", "(", a, f" {test} ", b, ")", bound=1)

    def _text_of_rare(self, scope: Scope, depth: int) -> Node:
        rng = self.rng
        match rng.randrange(7):
            case 0:
                kind = rng.choice(["uuid", "time", "integers", "range", "texts", "bytea"])
                return expr("text", "(", self.value(kind, scope, depth), ")::text", bound=500)
            case 1:
                a, form = self.value("bytea", scope, depth), rng.choice(["hex", "base64", "escape"])
                return expr("text", "encode(", a, f", '{form}')", bound=500)
            case 2:
                step = rng.choice(["->> 'a'", "->> 0", "#>> '{b}'", "->> 'b'"])
                return expr("text", "(", self.value("jsonb", scope, depth), f" {step})", bound=500)
            case 3:
                return expr(
                    "text", "jsonb_typeof(", self.value("jsonb", scope, depth), ")", bound=10
                )
            case 4:
                kind = rng.choice(["integers", "texts"])
                a = self.value(kind, scope, depth)
                return expr("text", "array_to_string(", a, ", ','", clause(", '?'"), ")", bound=500)
            case 5:
                a = self.value("texts", scope, depth)
                return expr("text", "(", a, f")[{rng.randint(0, 3)}]", bound=100)
            case _:
                form = rng.choice(
                    ["YYYY-MM-DD HH24:MI:SS", "FMDay, FMDD Mon", "DDD HH12 am", "Q IYYY IW"]
                )
                kind = rng.choice(["timestamp", "timestamptz"])
                a = self.value(kind, scope, depth, 100)
                return expr("text", "to_char(", a, f", '{form}')", bound=30)

    def _integer_of_rare(self, scope: Scope, depth: int) -> Node:
        rng = self.rng
        match rng.randrange(6):
            case 0:
                a = self.value("integers", scope, depth)
                return expr("integer", "(", a, f")[{rng.randint(0, 3)}]", bound=a.bound)
            case 1:
                name = rng.choice(["array_length", "array_upper", "array_lower"])
                a = self.value(rng.choice(["integers", "texts"]), scope, depth)
                return expr("integer", f"{name}(", a, ", 1)", bound=1000)
            case 2:
                a, i = self.value("integers", scope, depth), self.value("integer", scope, depth)
                return expr("integer", "array_position(", a, ", ", i, ")", bound=1000)
            case 3:
                a = self.value("range", scope, depth)
                return expr(
                    "integer", f"{rng.choice(['lower', 'upper'])}(", a, ")", bound=a.bound + 1
                )
            case 4:
                unit = rng.choice(["hour", "minute"])
                a = self.value(rng.choice(["time", "timestamptz"]), scope, depth)
                return expr("integer", f"extract({unit} FROM ", a, ")::integer", bound=60)
            case _:
                a = self.value("bytea", scope, depth)
                return expr(
                    "integer", f"{rng.choice(['length', 'octet_length'])}(", a, ")", bound=1000
                )

    def _timestamp_of_rare(self, scope: Scope, depth: int) -> Node:
        match self.rng.randrange(4):
            case 0:
                a = self.value("timestamptz", scope, depth, 100)
                zone = self.rng.choice(["UTC", "Asia/Tokyo", "-03"])
                return expr("timestamp", "(", a, f" AT TIME ZONE '{zone}')", bound=a.bound)
            case 1:
                a, b = self.value("date", scope, depth, 100), self.value("time", scope, depth)
                return expr("timestamp", "(", a, " + ", b, ")", bound=a.bound)
            case 2:
                a, i = (
                    self.value("timestamp", scope, depth, 100),
                    self.value("integer", scope, depth, 1000),
                )
                return expr("timestamp", "(", a, " + ", i, " * INTERVAL '1 day')", bound=a.bound)
            case _:
                a, b, c = (self.value("timestamp", scope, depth, 100) for _ in range(3))
                return expr("timestamp", "(", a, " + (", b, " - ", c, "))", bound=a.bound)

    def _date_of_rare(self, scope: Scope, depth: int) -> Node:
        if self.rng.random() < 0.5:
            return expr("date", "(", self.value("timestamptz", scope, depth), ")::date")
        a, i = self.value("date", scope, depth, 100), self.value("integer", scope, depth, 1000)
        return expr("date", "(", a, " + ", i, ")", bound=a.bound)

    def _epoch(self, scope: Scope, depth: int) -> Node:
        kind = self.rng.choice(["timestamp", "timestamptz", "time", "date"])
        if self.rng.random() < 0.5:
            a, b = (self.value("timestamp", scope, depth, 100) for _ in range(2))
            return expr("numeric", "extract(epoch FROM (", a, " - ", b, "))", bound=1e12)
        a = self.value(kind, scope, depth, 100)
        return expr("numeric", "extract(epoch FROM ", a, ")", bound=1e12)
