"""Texts that would be larger than 100 MiB: an error in a query, in planning and in a view, and nobody makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mzsql

#: Each of a text x, and whether 60 MiB of it are too much.
_EXPRESSIONS = {
    "x || x": True,
    "concat(x, NULL, x)": True,
    "concat_ws('-', x, x)": True,
    "repeat(x, 2)": True,
    "replace(x, 'a', 'bcd')": True,
    "replace(x, 'a', 'b')": False,
    "replace(x, 'q', repeat('z', 1000))": False,
    "regexp_replace(x, '^', x, 'g')": True,
    "array_to_string(ARRAY[x, a, a], x)": True,
    "array_to_string(ARRAY[a, NULL], x, x)": True,
    "concat(x, 7)": False,
    "lpad(x, 104857601)": True,
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("sizes") / "env") as made:
        made.execute("CREATE TABLE t (a text)")
        made.execute("INSERT INTO t VALUES ('a')")
        yield made


@pytest.mark.parametrize(("expression", "fails"), _EXPRESSIONS.items())
def test_a_text_that_is_too_large_is_an_error(
    con: mzsql.Connection, expression: str, fails: bool
) -> None:
    query = f"SELECT length({expression}) FROM (SELECT a, repeat(a, 62914560) AS x FROM t) q"
    if not fails:
        ((length,),) = con.execute(query).fetchall()
        assert 62914560 <= length <= 62914561
        return
    with pytest.raises(mzsql.Error, match="requested length too large") as raised:
        con.execute(query).fetchall()
    assert raised.value.sqlstate == "54000"


@pytest.mark.parametrize("expression", ["x || x", "concat_ws('-', x, x)", "repeat(x, 2)"])
def test_what_is_folded_has_the_same_bound(con: mzsql.Connection, expression: str) -> None:
    with pytest.raises(mzsql.Error, match="requested length too large"):
        con.execute(f"SELECT length({expression}) FROM (SELECT repeat('a', 62914560) AS x) q")
