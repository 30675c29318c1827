"""Functions' names in plans, where they differ from their SQL names.

Promise: names only, as in Materialize's plans: by argument type (``sqrtf64``), by the function that another is an alias
of (``length`` of bytes is ``octet_length``), and with a constant pattern, format or zone inside the name
(``timezone_UTC_ts``). Any other function has the name in its row of the table of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.scalar import Literal, Scalar

_BY_NUMBER = {
    f"{name}_{typ}": f"{name.removesuffix('ing')}{short}"
    for name in ("ceil", "ceiling", "floor", "round", "trunc")
    for typ, short in (("real", "f32"), ("double", "f64"), ("numeric", "numeric"))
}
_BY_PRECISION = {
    f"{name}_{typ}": f"{shown}{short}"
    for name, shown in (
        ("sqrt", "sqrt"),
        ("exp", "exp"),
        ("ln", "ln"),
        ("log10", "log10"),
        ("log", "log10"),
    )
    for typ, short in (("double", "f64"), ("numeric", "numeric"))
}
_CASTS = {
    "double_to_bigint": "f64toi64",
    "numeric_to_numeric": "adjust_numeric_scale",
    "timestamptz_to_mz_timestamp": "timestamp_tz_to_mz_timestamp",
    "mz_timestamp_to_timestamptz": "mz_timestamp_to_timestamp_tz",
    "text_to_array": "strtoarray",
    "text_to_list": "strtolist",
    "text_to_map": "strtomap",
    "text_to_range": "strtorange",
    "array_to_text": "arraytostr",
    "list_to_text": "listtostr",
    "map_to_text": "maptostr",
    "record_to_text": "recordtostr",
    "range_to_text": "rangetostr",
    "list_to_list": "list1tolist2",
    "array_to_list": "arraytolist",
}
#: Names by function key.
_NAMES = {
    **_BY_NUMBER,
    **_BY_PRECISION,
    **_CASTS,
    "cbrt_double": "cbrtf64",
    "power_numeric": "power_numeric",
    "pow_numeric": "power_numeric",
    "pow_double": "power",
    "to_timestamp": "tots",
    "to_char_ts": "tocharts",
    "to_char_tstz": "tochartstz",
    "date_bin_ts": "timestamp_bin",
    "date_bin_tstz": "timestamptz_bin",
    "date_bin_unix_epoch_ts": "bin_unix_epoch_timestamp",
    "date_bin_unix_epoch_tstz": "bin_unix_epoch_timestamptz",
    "timezone_ts": "timezonets",
    "timezone_tstz": "timezonetstz",
    "timezone_its": "timezoneits",
    "timezone_itstz": "timezoneitstz",
    "timezone_t": "timezonet",
    "length_bytea": "octet_length",
    "split_part": "split_string",
    "make_timestamp": "makets",
    "array_get": "array_index",
    "list_get": "list_index",
    "list_slice": "list_slice_linear",
    "map": "map_build",
}
#: Functions shown as another expression.
_TEMPLATES = {
    "array_cat": "({0} || {1})",
    "list_cat": "({0} || {1})",
    "list_append": "({0} || {1})",
    "list_prepend": "({0} || {1})",
    "concat_bytea": "({0} || {1})",
    "md5": 'encode(digest({0}, "md5"), "hex")',
    "md5_bytea": 'encode(digest({0}, "md5"), "hex")',
    "regex_not_match": "NOT(({0} ~ {1}))",
    "regex_not_imatch": "NOT(({0} ~* {1}))",
}
#: Functions with a constant argument inside the name: its position, the name before it and after it.
_KNOWN: dict[str, tuple[int, str, str]] = {
    "to_char_ts": (1, "tocharts[", "]"),
    "to_char_tstz": (1, "tochartstz[", "]"),
    "timezone_ts": (0, "timezone_", "_ts"),
    "timezone_tstz": (0, "timezone_", "_tstz"),
}
#: The same for patterns, which are shown in quotes: the name before and after.
_PATTERNS: dict[str, tuple[str, str]] = {
    "like": ("like[", "]"),
    "like_char": ("like[", "]"),
    "ilike": ("ilike[", "]"),
    "ilike_char": ("ilike[", "]"),
    "regex_match": ("is_regexp_match[", ", case_insensitive=false]"),
    "regex_match_char": ("is_regexp_match[", ", case_insensitive=false]"),
    "regex_imatch": ("is_regexp_match[", ", case_insensitive=true]"),
    "regex_imatch_char": ("is_regexp_match[", ", case_insensitive=true]"),
    "regex_not_match": ("is_regexp_match[", ", case_insensitive=false]"),
    "regex_not_match_char": ("is_regexp_match[", ", case_insensitive=false]"),
    "regex_not_imatch": ("is_regexp_match[", ", case_insensitive=true]"),
    "regex_not_imatch_char": ("is_regexp_match[", ", case_insensitive=true]"),
    "regexp_match": ("regexp_match[", ", case_insensitive=false]"),
    "regexp_split_to_array": ("regexp_split_to_array[", ", case_insensitive=false]"),
}


def plan_name(key: str, name: str) -> str:
    """The name in plans of the function or cast with this key, whose row in the table of functions has ``name``."""
    if key in _NAMES:
        return _NAMES[key]
    return name.removesuffix("_checked").replace("timestamptz", "timestamp_with_time_zone")


def template(key: str) -> str:
    """The format string by which plans show the function with this key; empty where it is shown as a call."""
    return _TEMPLATES.get(key, "")


def with_constant(
    key: str, args: Sequence[Scalar], show: Callable[[Scalar], str], bare: Callable[[Literal], str]
) -> str | None:
    """A call with its constant argument inside the function's name; None where this is no such call.

    Args:
        key: the function.
        args: its arguments.
        show: prints an expression.
        bare: prints a text without quotes.
    """
    if key in _PATTERNS and len(args) == 2 and isinstance(args[1], Literal):
        before, after = _PATTERNS[key]
        shown = show(args[0])
        if key.endswith("_char"):
            shown = f"padchar({shown})"
        call = f"{before}{show(args[1])}{after}({shown})"
        return f"NOT({call})" if key.startswith("regex_not") else call
    if key in _KNOWN:
        place, before, after = _KNOWN[key]
        constant = args[place]
        if isinstance(constant, Literal) and constant.value is not None:
            return f"{before}{bare(constant)}{after}({show(args[1 - place])})"
    return None
