"""Making a wrapper class with exactly the optional abilities of the wrapped backend.

Promise: code that tests for an optional protocol with `isinstance` behaves the same with and without a wrapper. The
trade-off: a class is created for each set of abilities, once, because runtime-checkable protocols look at classes and
not at ``__getattr__``.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, TypeVar

W = TypeVar("W")

Abilities: TypeAlias = tuple[tuple[type[Any], type[Any]], ...]
"""Optional protocols, each with the mixin class that implements it in a wrapper."""


def class_as_able(inner: object, base: type[W], abilities: Abilities) -> type[W]:
    """``base`` with the mixins of those ``abilities`` whose protocols ``inner`` implements."""
    return _made((*(mixin for protocol, mixin in abilities if isinstance(inner, protocol)), base))


@functools.cache
def _made(bases: tuple[type[Any], ...]) -> type[Any]:
    return bases[0] if len(bases) == 1 else type(bases[-1].__name__, bases, {})
