"""Nothing is defined that nobody uses: a name that stands in the project only where it is defined is in the reader's way.

What only tests use counts as unused, unless the docs name it: then users do. To be in a module's `__all__` is no use; what a package
offers in its own is for users. Other programs call some names: libraries those that they
look for, Spark those of its data sources, tools those of the DB-API.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from workshop_sources import ROOT, Look, Module

PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
#: Who calls what nobody here calls.
CALLED_BY_OTHERS = {
    "DB-API": {"executemany", "callproc", "setinputsizes", "setoutputsize", "pandas", "write_row"},
    "users, of values": {"as_timedelta"},
    "contextlib": {"_recreate_cm"},
    "prompt_toolkit": {"get_completions"},
    "sqlglot": {
        *("LAMBDAS", "TYPED_LAMBDA_ARGS", "SUBQUERY_PREDICATES", "BIT_STRINGS"),
        *("_parse_with", "_parse_unnest", "_parse_interval", "_parse_user_defined_type"),
        "_parse_escape",
        "_scan_number",
        *("NESTED_TYPE_TOKENS", "STRUCT_TYPE_TOKENS", "AGGREGATE_TYPE_TOKENS", "ENUM_TYPE_TOKENS"),
        "SIGNED_TO_UNSIGNED_TYPE_TOKEN",
    },
    "pyarrow": {"seekable", "writable"},
    "Spark": {"streamReader", "initialOffset", "latestOffset", "prepareForTriggerAvailableNow"},
}
#: What registers a function where it is defined: commands, cases of the kits, hooks of plugins, rules of hypothesis.
_REGISTERS = re.compile(r"command|callback|case|hookimpl|hookspec|rule|invariant|initialize|_in_")


def defined(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that statements define, those of classes' members included."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not any(_REGISTERS.search(ast.unparse(one)) for one in node.decorator_list):
                    yield name
            case ast.ClassDef(name=name, body=inner):
                yield name
                yield from defined(inner)
            case ast.Assign(targets=targets):
                yield from (one.id for one in targets if isinstance(one, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=inner) | ast.Try(body=inner):
                yield from defined(inner)


def _offers(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def used(module: Module) -> Iterator[str]:
    """The names that a module reads, as names, attributes, arguments or in texts that are names; and those that a package offers."""
    left_out = set()
    if not module.path.endswith("__init__.py"):
        offers = (node for node in module.tree.body if _offers(node))
        left_out = {id(below) for one in offers for below in ast.walk(one)}
    for node in module.nodes:
        if id(node) in left_out:
            continue
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.]+", text):
                yield text.rsplit(".", maxsplit=1)[-1]


@Look
def names_of(module: Module) -> tuple[list[str], set[str]]:
    """What a module defines, and what it uses."""
    names = [name for name in defined(module.tree.body) if not name.startswith("__")]
    return names, set(used(module))


def test_what_is_defined_is_used() -> None:
    others = set().union(*CALLED_BY_OTHERS.values())
    known = others | {word for page in PAGES for word in re.findall(r"\w+", page.read_text())}
    names: dict[str, str] = {}
    for file, (defines, uses) in names_of().items():
        known |= uses
        names.update((name, file) for name in defines)
    unused = [f"{file}: {name}" for name, file in names.items() if name not in known]
    assert not unused, "\n".join(unused)
    assert not others - names.keys(), "these are called by others and not there"
