"""Properties that are computed at their first use and kept, without a lock.

Promise: threads that ask for a property at the same moment may each compute it, and all get the one result that was kept first;
nobody waits for another's computation. `functools.cached_property` holds one lock for all instances of a class before Python 3.12:
there a slow computation for one object keeps every other one waiting, and two that need each other's locks never end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801  # read as `property` is
    """A property of objects with a ``__dict__``, computed by the decorated method, which must give equal results each time."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Self:
        if instance is None:
            return self
        kept: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return kept
