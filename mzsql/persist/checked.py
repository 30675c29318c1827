"""Checks of the arguments of persist's public calls, by name, before the calls do anything.

Promise: an argument of a given name means the same in every public call of a client and its handles, so its type is
checked here once, and new calls are covered without being listed. Whether a value of the right type can be served is
checked by the call itself.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import UNSET
from prometheus_client import CollectorRegistry

from mzsql.location.errors import UsageError
from mzsql.persist.arguments import (
    check_frontier,
    check_number,
    check_shard_id,
    check_text,
    check_time,
    given,
    refuse,
)
from mzsql.persist.batch import Batch, ReadStats
from mzsql.persist.errors import InvalidBounds
from mzsql.persist.settings import Settings

C = TypeVar("C", bound=type)

_LONGEST_SECONDS = 1e12

Check = Callable[[Any, str], None]


def _seconds(value: Any, _: str) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (abs(value) <= _LONGEST_SECONDS or value == math.inf):
        raise UsageError(f"a timeout is a number of seconds, not {given(value)}")


def _one_of(wanted: str, *types: type) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, types):
            refuse(name, wanted, value)

    return check


def _optional(check: Check) -> Check:
    def checked_if_there(value: Any, name: str) -> None:
        if value is not None:
            check(value, name)

    return checked_if_there


def _each(wanted: str, check: Check) -> Check:
    def check_all(value: Any, name: str) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
            refuse(name, wanted, value)
        for one in value:
            check(one, f"each of {name}")

    return check_all


def _batches(value: Any, name: str) -> None:
    one = _one_of("a Batch or a sequence of them", Batch)
    if isinstance(value, Batch):
        return
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        one(value, name)
    for each in value:
        one(each, name)


def _directory(value: Any, name: str) -> None:
    # Not a subclass of str, whose text could change between calls.
    if not isinstance(value, Path) and type(value) is not str:
        refuse(name, "a str or a Path", value)


def _splits(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SPLITS:
        raise InvalidBounds(
            f"{name}: a snapshot has at least one split and at most {MOST_SPLITS}, not {given(value)}"
        )


def _callable(value: Any, name: str) -> None:
    if not callable(value):
        refuse(name, "a callable", value)


def _least(least: int) -> Check:
    return lambda value, name: check_number(value, name, least, whole=True)


def _upper(value: Any, name: str) -> None:
    # Each call checks itself whether it accepts the empty frontier.
    if value is not None and value is not UNSET:
        check_time(value, name)


def _anything(value: Any, name: str) -> None:
    """Accept any element: the call checks them."""


_flag = _one_of("True or False", bool)
_text: Check = check_text

#: The most splits of a snapshot.
MOST_SPLITS = 1_000_000

#: The check of each argument name, in whichever public call.
CHECKS: Mapping[str, Check] = {
    "after": _optional(_least(0)),
    "all_due": _flag,
    "beside": _flag,
    "as_of": check_time,
    "background": _flag,
    "batch": _batches,
    "blob": _text,
    "cache": _optional(_directory),
    "cache_bytes": _least(0),
    "cache_memory_bytes": _least(0),
    "columns": _optional(_one_of("a sequence of names", Sequence)),
    "consensus": _text,
    "consolidate": _flag,
    "delete": _flag,
    "delete_of_no_shard": _flag,
    "expected_token": _optional(_text),
    "expected_upper": check_frontier,
    "full": _flag,
    "keys": _each("a sequence of keys", _text),
    "lower": check_time,
    "new_since": check_frontier,
    "num_splits": _splits,
    "new_upper": check_frontier,
    "older_than_ms": _least(0),
    "past": check_time,
    "protected": _optional(_callable),
    "registry": _optional(_one_of("a CollectorRegistry of prometheus_client", CollectorRegistry)),
    "rows": _least(0),
    "settings": _optional(_one_of("Settings", Settings)),
    "shard_id": lambda value, _: check_shard_id(value),
    "shard_ids": _optional(
        _each("a sequence of shard ids", lambda value, _: check_shard_id(value))
    ),
    "size": _least(0),
    "stats": _optional(_one_of("ReadStats", ReadStats)),
    "timeout": _seconds,
    "upper": _upper,
    "workers": _optional(_each("a sequence of workers' numbers", _anything)),
}


def checked(cls: C) -> C:
    """Decorate a class: its public methods check their arguments first, by name."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(cls, name, classmethod(_checked(member.__func__)))
        elif inspect.isfunction(member):
            setattr(cls, name, _checked(member))
    return cls


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(call).parameters)
    checks = [CHECKS.get(name) for name in names]
    if not any(checks):
        return call

    @functools.wraps(call)
    def looking(*args: Any, **named: Any) -> Any:
        for check, name, value in zip(checks, names, args, strict=False):
            if check is not None:
                check(value, name)
        for name, value in named.items():
            check = CHECKS.get(name)
            if check is not None:
                check(value, name)
        return call(*args, **named)

    return looking
