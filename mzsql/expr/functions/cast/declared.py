"""Casts by key, including those of containers.

Promise: a key stands for one cast, looked up when SQL is generated. Trade-off: the cast of a container is made of its
elements' casts, which may be containers' in turn, in modules that import this one; so each module registers its casts
here on import, and keys are looked up only after all imports.
"""

from __future__ import annotations

from mzsql.expr.functions.cast.casts import FUNCTIONS
from mzsql.expr.functions.table import ScalarFunc

_CASTS: dict[str, ScalarFunc] = {func.key: func for func in FUNCTIONS}


def declared(*funcs: ScalarFunc) -> tuple[ScalarFunc, ...]:
    """The given casts, now registered for `cast_named`."""
    _CASTS.update((func.key, func) for func in funcs)
    return funcs


def cast_named(key: str) -> ScalarFunc:
    """The cast with a key from `find_cast`.

    Raises:
        KeyError: there is none, which is a bug.
    """
    return _CASTS[key]
