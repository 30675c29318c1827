"""The functions of scalars beyond PostgreSQL's core: one list of what their modules declare."""

from __future__ import annotations

from mzsql.expr.functions import (
    bits,
    charsets,
    compatibility,
    datediff,
    encodings,
    formats,
    identifiers,
    moments,
    regexes,
    trigonometry,
)
from mzsql.expr.functions.table import ScalarFunc

FUNCTIONS: tuple[ScalarFunc, ...] = (
    *bits.FUNCTIONS,
    *charsets.FUNCTIONS,
    *compatibility.FUNCTIONS,
    *datediff.FUNCTIONS,
    *encodings.FUNCTIONS,
    *formats.FUNCTIONS,
    *identifiers.FUNCTIONS,
    *moments.FUNCTIONS,
    *regexes.FUNCTIONS,
    *trigonometry.FUNCTIONS,
)
