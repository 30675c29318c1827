"""The functions, aggregates and operators that there are, as rows of the catalog: every overload of the table of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mzsql.frontend.scalar.function_catalog import function_numbers, numbered, operators, overloads
from mzsql.frontend.scalar.qualified import schemas_of
from mzsql.repr.type_oids import type_oid
from mzsql.repr.types import SqlType

Rows = Iterable[tuple[Any, ...]]

#: Beyond the numbers of builtin relations, with which types share their ids.
_FIRST_TYPE = 100_000


def type_id(number: int) -> str:
    """The id of a type of the system by its number."""
    return f"s{_FIRST_TYPE + number}"


def _type_ids(types: Sequence[SqlType]) -> list[str]:
    return [type_id(type_oid(typ)) for typ in types]


def _id_of(typ: SqlType | None) -> str | None:
    return None if typ is None else type_id(type_oid(typ))


def function_rows(schema_id: Callable[[str], str], owner: str) -> Rows:
    """`mz_functions`: every overload that is no operator."""
    ids = numbered(overloads())
    for (at, _), (number, one) in zip(ids, function_numbers(), strict=True):
        yield (
            f"s{at}",
            number,
            schema_id(schemas_of(one.name)[0]),
            one.name,
            _type_ids(one.args),
            _id_of(one.variadic),
            _id_of(one.result),
            one.returns_set,
            owner,
        )


def aggregate_rows() -> Rows:
    """`mz_aggregates`: those of them that are aggregates; each is a plain one, without direct arguments."""
    for number, one in function_numbers():
        if one.kind == "a":
            yield number, "n", 0


def operator_rows() -> Rows:
    """`mz_operators`."""
    for number, one in numbered(operators()):
        yield number, one.name, _type_ids(one.args), _id_of(one.result)
