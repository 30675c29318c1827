"""TPC-H's tables and queries as the project ships them."""

from __future__ import annotations

from importlib import resources

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
NAMES = tuple(f"q{number:02}" for number in range(1, 23))


def script(name: str) -> str:
    """A shipped script."""
    return (resources.files("mzsql.scripts") / "tpch" / f"{name}.sql").read_text()


def query_of(name: str) -> str:
    """The query that a view is made of."""
    text = script(name)
    return text[text.index(" AS\n") + 4 :].strip().rstrip(";")
