"""Expectations of the kit's cases, each with a text for whoever reads the failure; they need no pytest and hold under ``python -O``."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

_SHOWN = 300


def expect(holds: bool, text: str) -> None:
    """Fail with ``text`` unless ``holds``.

    Raises:
        AssertionError: it does not hold.
    """
    if not holds:
        raise AssertionError(text)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Fail unless ``found`` is ``wanted``; ``what`` says what was looked at.

    Raises:
        AssertionError: it is not; the message shows where they differ first.
    """
    if found != wanted:
        raise AssertionError(f"{what}: {_difference(found, wanted)}")


def _difference(found: object, wanted: object) -> str:
    """How two things differ: of sets only what one has and the other has not, as a whole listing would hide it."""
    if isinstance(found, Set) and isinstance(wanted, Set):
        parts = [
            f"{word} {_shown(those)}"
            for word, those in (("missing", wanted - found), ("unexpected", found - wanted))
            if those
        ]
        return f"{', '.join(parts)} (expected {len(wanted)}, found {len(found)})"
    return f"expected {_shown(wanted) if wanted not in ([], {}) else 'none'}, found {_shown(found)}"


def expect_raises(errors: type[Exception], what: str, act: Callable[..., Any], *args: Any) -> None:
    """Fail unless ``act(*args)`` raises one of ``errors``; another exception is a failure that says which.

    Raises:
        AssertionError: nothing was raised, or something else.
    """
    try:
        found = act(*args)
    except errors:
        return
    except Exception as failure:
        raise AssertionError(
            f"{what}: expected {errors.__name__}, found {type(failure).__name__}: {failure}"
        ) from failure
    raise AssertionError(f"{what}: expected {errors.__name__}, found the answer {_shown(found)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
