"""The functions of scalars beyond PostgreSQL's core: one list of what their modules declare."""

from __future__ import annotations

from mzsql.expr.functions import bits, encodings, formats, moments, regexes, trigonometry
from mzsql.expr.functions.table import ScalarFunc

FUNCTIONS: tuple[ScalarFunc, ...] = (
    *bits.FUNCTIONS,
    *encodings.FUNCTIONS,
    *formats.FUNCTIONS,
    *moments.FUNCTIONS,
    *regexes.FUNCTIONS,
    *trigonometry.FUNCTIONS,
)
