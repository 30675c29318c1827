"""The functions, aggregates and operators as rows of the catalog: every overload in the table of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mzsql.frontend.scalar.function_catalog import function_numbers, numbered, operators, overloads
from mzsql.frontend.scalar.qualified import schemas_of
from mzsql.repr.type_oids import type_oid
from mzsql.repr.types import SqlType

Rows = Iterable[tuple[Any, ...]]

#: Ids of types start here, above the numbers of builtin relations, which share the prefix ``s``.
_FIRST_TYPE = 100_000


def type_id(number: int) -> str:
    """The id of a system type, by its OID."""
    return f"s{_FIRST_TYPE + number}"


def _type_ids(types: Sequence[SqlType]) -> list[str]:
    return [type_id(type_oid(typ)) for typ in types]


def _id_of(typ: SqlType | None) -> str | None:
    return None if typ is None else type_id(type_oid(typ))


def function_rows(schema_id: Callable[[str], str], owner: str) -> Rows:
    """`mz_functions`: every overload that is no operator.

    Args:
        schema_id: from a schema's name to its id.
        owner: the id of the owning role.
    """
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
    """`mz_aggregates`: the overloads that are aggregates; all are plain ones, without direct arguments."""
    for number, one in function_numbers():
        if one.kind == "a":
            yield number, "n", 0


def operator_rows() -> Rows:
    """`mz_operators`."""
    for number, one in numbered(operators()):
        yield number, one.name, _type_ids(one.args), _id_of(one.result)
