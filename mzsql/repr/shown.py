"""Values that a program gave by mistake, as errors name them.

Promise: a value is shown by its text where that is short and Python's own to make, else by its type alone: nothing of the caller's runs.
"""

from __future__ import annotations

_PLAIN = (bool, int, float, str, type(None))
_LONGEST = 80


def plain(value: object) -> str | None:
    """The text of a value as it stands in a program; None where it has none that is short and surely harmless."""
    kind = type(value)
    if kind not in _PLAIN or (isinstance(value, int) and abs(value) >= 10**_LONGEST):
        return None  # a number's text may take long to make
    text = ascii(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def shown(value: object) -> str:
    """A value as an error names it: ``int 5``, ``str 'x'``, else only its type."""
    text = plain(value)
    if value is None or text is None:
        return text or type(value).__name__
    return f"{type(value).__name__} {text}"
