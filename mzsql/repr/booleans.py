"""One reading of a boolean that somebody wrote as a word: in SET, in the options of statements, in ALTER SYSTEM.

PostgreSQL's (https://www.postgresql.org/docs/current/datatype-boolean.html): every unambiguous beginning of ``true``, ``false``, ``yes``
and ``no``, ``on``, ``off`` and its beginning ``of``, ``1`` and ``0``, in any case.
"""

from __future__ import annotations


def boolean_of(text: str) -> bool | None:
    """What a word says; None where it is no boolean."""
    word = text.strip().lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return True
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("of", "off", "0")):
        return False
    return None
