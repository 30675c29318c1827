"""Updates are cut off at a time, added up and repeated in one place for each engine: `mzsql.render.updates` has the statements,
`mzsql.persist` and `mzsql.repr.tables` what is done over Arrow. A second statement of it is a second place where zeros, errors and sums
that do not fit must be got right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from workshop_sources import Look

#: Where it is stated.
HOMES = ("mzsql/render/updates.py", "mzsql/persist/", "mzsql/repr/tables.py")
#: What looks like it and is none, with the reason.
OTHERS = {
    "mzsql/adapter/subscribe/output.py": "an envelope looks at how many rows of a key went, and how many came, of consolidated updates"
}
_DIFF = re.compile(r"""(col\()?(DIFF|DIFF_COLUMN|['"]mz_diff['"])(,|\)|$)""")
_TIME = re.compile(r"""TIME_COLUMN|['"]mz_time['"]|\bTIME\b""")
_TEXT = re.compile(r"\bsum\([^)]*mz_diff|\bmz_time\b\W*<=|\barray_repeat\(", re.IGNORECASE)
_SERIES = re.compile(r"['\"](SEQUENCE|GENERATE_SERIES)['\"]")


def _text(node: ast.AST) -> str:
    """A text as it is written; what is put into it as its source."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                ast.unparse(one.value) if isinstance(one, ast.FormattedValue) else _text(one)
                for one in values
            )
    return ""


def _is_prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_restated(name: str, given: list[str]) -> bool:
    """Whether a call of a method does what is to be done in one place."""
    all_given = " ".join(given)
    match name:
        case "Sum" | "sum" | "try_sum":
            return any(map(_DIFF.match, given))
        case "less_equal":
            return bool(given and _TIME.search(given[0]))
        case "take":
            return bool(re.search(r"\brepeat\(|searchsorted\(", all_given))
        case "call":
            return bool(_SERIES.search(all_given) and re.search(r"\bDIFF\b", all_given))
    return name == "array_repeat"


def restated(tree: ast.Module) -> Iterator[int]:
    """The lines of a module where diffs are added up, rows repeated by them, or updates cut off at a time."""
    skipped = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr() if _is_prose(node):
                skipped.add(id(node.value))
            case ast.Call(func=ast.Name(id="window"), args=[ast.Call() as running, *_]):
                skipped.add(id(running))  # places, not sums of equal rows
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=args, keywords=keywords):
                given = [ast.unparse(one) for one in (*args, *(k.value for k in keywords))]
                if _is_restated(name, given):
                    yield node.lineno
            case ast.Tuple(elts=[column, ast.Constant(value="sum")]):
                if _DIFF.match(ast.unparse(column)):
                    yield node.lineno
            case ast.Constant() | ast.JoinedStr() if _TEXT.search(_text(node)):
                yield node.lineno


found_in = Look(lambda module: list(restated(module.tree)))


def test_updates_are_consolidated_and_expanded_in_one_place() -> None:
    found = {
        f"{file}:{line}"
        for file, lines in found_in().items()
        if not file.startswith(HOMES) and file not in OTHERS
        for line in lines
    }
    assert sorted(found) == []


def test_what_is_excused_is_there() -> None:
    assert all(found_in()[file] for file in OTHERS)


def test_a_second_statement_is_seen() -> None:
    for text in (
        "exp.Sum(this=col(DIFF, 'a'))",
        "exp.Sum(this=col(DIFF))",
        "frame.agg(F.sum('mz_diff').alias('mz_diff'))",
        "table.group_by(names).aggregate([(DIFF_COLUMN, 'sum')])",
        "f'SELECT {columns}, sum(mz_diff) FROM updates'",
        "'SELECT sum(c0 * mz_diff) FROM updates'",
        "table.filter(pc.less_equal(table.column(TIME_COLUMN), as_of))",
        "f'SELECT * FROM updates WHERE mz_time <= {time}'",
        "rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))",
        "F.explode(F.array_repeat(F.lit(1), copies))",
        "s.call('GENERATE_SERIES', big(1, engine), col(DIFF))",
    ):
        assert list(restated(ast.parse(f"x = {text}"))), text
    for text in (
        "exp.Sum(this=col('c0'))",
        "window(exp.Sum(this=col(DIFF)), [], [], rows=True)",
        "pc.less_equal(table.column('price'), 4)",
        "rows.take(places)",
    ):
        assert not list(restated(ast.parse(f"x = {text}"))), text
