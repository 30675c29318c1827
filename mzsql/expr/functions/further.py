"""The functions of scalars beyond PostgreSQL's core: one list of what their modules declare."""

from __future__ import annotations

from mzsql.expr.functions import (
    array_filling,
    bits,
    charsets,
    compatibility,
    datediff,
    encodings,
    formats,
    hashes,
    identifiers,
    iso_moments,
    moments,
    normal_forms,
    regexes,
    trigonometry,
    zone_offsets,
)
from mzsql.expr.functions.table import ScalarFunc

FUNCTIONS: tuple[ScalarFunc, ...] = (
    *array_filling.FUNCTIONS,
    *bits.FUNCTIONS,
    *charsets.FUNCTIONS,
    *compatibility.FUNCTIONS,
    *datediff.FUNCTIONS,
    *encodings.FUNCTIONS,
    *formats.FUNCTIONS,
    *hashes.FUNCTIONS,
    *identifiers.FUNCTIONS,
    *iso_moments.FUNCTIONS,
    *moments.FUNCTIONS,
    *normal_forms.FUNCTIONS,
    *regexes.FUNCTIONS,
    *trigonometry.FUNCTIONS,
    *zone_offsets.FUNCTIONS,
)
