"""What opening a backend by its URL promises, alike for each kind: options that are not known are refused, and secrets are not shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mzsql.location import InvalidUrl, Versioned
from mzsql.location.urls import secrets_of
from mzsql.repr.errors import SqlError
from mzsql.testing.contract import Site, skip
from mzsql.testing.expect import expect
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite

_SECRET = "kit-S3NTINEL-kit"  # noqa: S105 - nobody's
_OPTION = "mzsql_kit_password"


def options(site: Site) -> None:
    """An option that the URL's scheme does not know is an InvalidUrl that names it, and no error or repr shows a secret of the URL.

    Raises:
        AssertionError: the option is taken, refused by another error, or a secret is shown.
    """
    if site.url is None or site.opens is None:
        skip("not opened by a URL")
        return
    url = f"{site.url}{'&' if '?' in site.url else '?'}{_OPTION}={_SECRET}"
    secrets = {_SECRET, *secrets_of(site.url)}
    try:
        site.opens(url).close()
    except InvalidUrl as refused:
        _shows_none(secrets, refused, "the refusal of an unknown option")
    except Exception as failure:
        raise AssertionError(
            f"an unknown option of the URL: expected InvalidUrl, found {type(failure).__name__}"
        ) from failure
    else:
        raise AssertionError(
            f"an unknown option of the URL ({_OPTION}=…) is ignored: a mistyped one would be a wrong setting nobody notices"
        )
    for what, act in _refused(site):
        try:
            act()
        except SqlError as failure:
            _shows_none(secrets, failure, f"the refusal of {what}")


def _refused(site: Site) -> list[tuple[str, Callable[[], object]]]:
    """Operations that are refused; that they are is other cases' business."""
    if isinstance(site, BlobSite):
        blob = site.open()
        return [("a malformed key", lambda: blob.set("../x", b""))]
    if isinstance(site, ConsensusSite):
        store = site.open()
        wrong = Versioned(7, b"")
        return [("a wrong step", lambda: store.compare_and_set("k", None, wrong))]
    if isinstance(site, OracleSite):
        oracle = site.open(lambda: 0)
        return [("a negative timestamp", lambda: oracle.apply_write(-1))]
    raise AssertionError(f"no operation of {type(site).__name__} is known to be refused")


def _shows_none(secrets: set[str], failure: SqlError, what: str) -> None:
    parts: list[Any] = [failure, failure.detail, failure.hint, repr(failure)]
    text = "\n".join(str(part) for part in parts if part is not None)
    # Not with the text itself, which would pass the secret on.
    expect(not any(secret in text for secret in secrets), f"{what} shows a secret of the URL")
