"""Classes that can do what a backend can, and no more.

Promise: whoever wraps a backend and asks with `isinstance` for an optional protocol takes the same path with and without the wrapper.
Trade-off: a class is made for each set of abilities, once, because a runtime protocol looks at classes and not at ``__getattr__``.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias, TypeVar

W = TypeVar("W")

Abilities: TypeAlias = tuple[tuple[type[Any], type[Any]], ...]
"""Optional protocols, each with the class that a wrapper has it from."""


def class_as_able(inner: object, base: type[W], abilities: Abilities) -> type[W]:
    """``base`` with those of ``abilities`` whose protocols ``inner`` has."""
    return _made((*(mixin for protocol, mixin in abilities if isinstance(inner, protocol)), base))


@functools.cache
def _made(bases: tuple[type[Any], ...]) -> type[Any]:
    return bases[0] if len(bases) == 1 else type(bases[-1].__name__, bases, {})
