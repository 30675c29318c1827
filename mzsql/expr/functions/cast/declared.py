"""Casts by their keys, those of containers among them.

Promise: what a key means is one cast, found when SQL is written. The trade-off: a container's cast is made of the casts of its elements,
which may be containers again, whose modules stand above this one; so each module declares its casts here as it is loaded, and a key is
looked up only once all are.
"""

from __future__ import annotations

from mzsql.expr.functions.cast.casts import FUNCTIONS
from mzsql.expr.functions.table import ScalarFunc

_CASTS: dict[str, ScalarFunc] = {func.key: func for func in FUNCTIONS}


def declared(*funcs: ScalarFunc) -> tuple[ScalarFunc, ...]:
    """These casts, which `cast_named` finds from now on."""
    _CASTS.update((func.key, func) for func in funcs)
    return funcs


def cast_named(key: str) -> ScalarFunc:
    """The cast of a key that `find_cast` gave; KeyError if there is none, which is a bug."""
    return _CASTS[key]
