"""What a regular expression is made of, and what Java is told in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import mzsql
from mzsql.expr.functions.table import Engine
from mzsql.expr.functions.text.patterns import groups, inline, problem, spelled
from mzsql.repr.errors import Unsupported


@pytest.mark.parametrize(
    ("pattern", "names", "optional"),
    [
        ("abc", [], []),
        ("(a)(?P<year>b)", [None, "year"], [False, False]),
        ("(a)|(b)", [None, None], [True, True]),
        ("(a|b)", [None], [False]),
        ("((a)|b)c", [None, None], [False, True]),
        ("(?:(a))?", [None], [True]),
        ("(a)*(b)+(c){0,2}(d){2}", [None] * 4, [True, False, True, False]),
        ("[(](a)\\((b)", [None, None], [False, False]),
        ("[](](a)", [None], [False]),
        ("\\Q(\\E(a)", [None], [False]),
        ("[[:alpha:](](a)?", [None], [True]),
    ],
)
def test_groups_of_a_pattern(pattern: str, names: list[str | None], optional: list[bool]) -> None:
    found = groups(pattern)
    assert problem(pattern) is None
    assert [g.name for g in found] == names
    assert [g.optional for g in found] == optional


def test_groups_are_named_with_and_without_the_letter(tmp_path: Path) -> None:
    assert [g.name for g in groups("(?<year>b)(?P<day>c)")] == ["year", "day"]
    with mzsql.connect(tmp_path / "env") as con:
        found = con.execute(
            "SELECT regexp_match('foobar', '(?<x>o+)'), 'a' ~ '(?<x>a)', regexp_replace('foobar', '(?<x>o+)', '[$x]')"
        ).fetchall()
        assert found == [(["oo"], True, "f[oo]bar")]
        assert con.execute("SELECT * FROM regexp_extract('(?<a>.)(.)', 'xy')").fetchall() == [
            ("x", "y")
        ]


@pytest.mark.parametrize(
    ("flags", "beginning"),
    [("", "(?s)"), ("i", "(?is)"), ("ic", "(?s)"), ("n", "(?m)"), ("p", ""), ("ns", "(?s)"), ("iw", "(?ism)")],
)  # fmt: skip
def test_flags_of_postgresql(flags: str, beginning: str) -> None:
    assert inline(flags) == beginning


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        ("a$", "(?sd)a\\z"),
        ("(?m)^a$", "(?sd)(?md)(?<![^\\n])a(?![^\\n])"),
        ("[[:alpha:]x]", "(?sd)[\\p{Alpha}x]"),
        ("[^[&]", "(?sd)[^\\[\\&]"),
        ("(?P<a_b>x)", "(?sd)(x)"),
        ("a{", "(?sd)a\\{"),
        ("a{2}", "(?sd)a{2}"),
        ("\\d", "(?sd)[\\p{Nd}]"),
        ("\\D[\\d.]", "(?sd)[^\\p{Nd}][\\p{Nd}.]"),
        ("(?i)é", "(?sd)(?iu)é"),
    ],
)
def test_what_java_reads_differently_is_rewritten(pattern: str, java: str) -> None:
    assert spelled(pattern, "", Engine.SPARK) == java


def test_what_java_cannot_say_is_refused() -> None:
    with pytest.raises(Unsupported, match="flag U"):
        spelled("(?U)a*", "", Engine.SPARK)
    assert spelled("(?U)a*", "", Engine.DUCKDB) == "(?s)(?U)a*"
