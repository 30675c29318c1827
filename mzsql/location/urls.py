"""Backends' URLs: parsing, building, and showing them without secrets.

Promise: `shown_url` never raises, and never shows a password or the value of a secret option, however malformed the URL
is; in doubt it hides. Every backend's message names its URL by `shown_url`, and text from elsewhere (a driver's
message) passes through `without_secrets`. The trade-off: an odd path that looks like a password (``a:b@c``) is hidden
too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from urllib.parse import SplitResult, quote, unquote, urlsplit

from mzsql.location.errors import InvalidUrl, UsageError

_HIDDEN = "***"
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|credential|signature|auth$|sig$|sas$|key$|keyid$")
_NOT_SECRET = frozenset({"sslkey", "sslpassfile", "passfile", "requireauth"})
_ASSIGNED = re.compile(r"([\w%.-]+)(\s*=\s*)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s&;]*)")
_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?(/*)(.*)", re.DOTALL)
_HOSTS = re.compile(r"[^:,]*(:[0-9]*)?(,[^:,]*(:[0-9]*)?)*")
_SHORTEST_REPLACED = 4


def check_text(value: object, what: str) -> None:
    """Check that a value is a str that can be encoded as UTF-8.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a str, not {type(value).__name__}")
    fits = True
    try:
        value.encode()
    except UnicodeEncodeError:
        fits = False  # and raised outside: the error holds the text, which may be secret
    if not fits:
        raise UsageError(f"{what} must be Unicode text: it has a lone surrogate")


def split_url(url: str) -> SplitResult:
    """``url`` in its parts.

    Raises:
        InvalidUrl: it has no scheme, or is not a URL.
    """
    check_text(url, "a URL")
    split: SplitResult | None
    try:
        split = urlsplit(url)
        if split.netloc.count("@") > 1:
            # Python ends the password at the last @, libpq at the first, so a part of the password would be taken for a
            # host, and shown.
            raise ValueError("an @ in a password")
        if "," not in split.netloc.rpartition("@")[2]:
            # A list of hosts with ports is left to the backend.
            split.port  # noqa: B018  # what is no number is noticed by asking for it
    except ValueError:
        split = None
    if split is None:
        # Raised outside the except block: the original error's message repeats parts of the URL, and would be its
        # context.
        raise InvalidUrl(
            f"not a URL: {shown_url(url)}: its host or port cannot be made out",
            hint="Write / ? # [ ] @ : and % in a user name or password percent-escaped, as in %2F for /.",
        )
    if not split.scheme:
        raise InvalidUrl(
            f"not a backend URL: {shown_url(url)!r}",
            hint="Write a scheme first, as in file:./env/blob, sqlite:./env/consensus.db or mem:.",
        )
    return split


def shown_url(url: str | SplitResult) -> str:
    """``url`` for people, with every password and secret option as ``***``. Never raises."""
    text = _text_of(url)
    head, mark, fragment = text.partition("#")
    before, question, query = head.partition("?")
    if _cut_in_password(before, query, fragment):
        # An unescaped ? or # in a password splits the URL in the wrong place: everything up to the last @ belongs to
        # the login.
        return _hide_login(text)
    shown = _hide_assigned(_hide_login(before))
    if question:
        shown += "?" + _shown_options(query)
    if mark:
        shown += "#" + _shown_options(fragment)
    return shown


def _shown_options(text: str) -> str:
    """``name=value&name=value`` with secret values hidden, and the parts without value after them: an unescaped ``&``
    may have split a secret.
    """
    shown = []
    hiding = False
    for part in re.split("([&;])", text):
        if part in ("&", ";"):
            shown.append(part)
            continue
        name, equals, _ = part.partition("=")
        if equals:
            hiding = _is_secret(name)
        shown.append(_shown_option(part) if equals or not hiding else _HIDDEN)
    return "".join(shown)


def _text_of(url: str | SplitResult) -> str:
    if isinstance(url, str):
        return url
    if not isinstance(url, SplitResult):
        return f"({type(url).__name__}, which is no URL)"
    # Not `geturl`, which turns file:./a into file:///./a, and sqlite:///a into sqlite:/a.
    place = f"//{url.netloc}{url.path}" if url.netloc or url.path.startswith("/") else url.path
    query = f"?{url.query}" if url.query else ""
    fragment = f"#{url.fragment}" if url.fragment else ""
    return f"{url.scheme}:{place}{query}{fragment}"


def _cut_in_password(before: str, query: str, fragment: str) -> bool:
    rest = before.partition(":")[2]
    if "@" in rest or ":" not in rest:
        return False
    return "@" in query.partition("=")[0] or ("@" in fragment)


def _hide_login(text: str) -> str:
    """``scheme://user:password@rest`` with the password hidden, up to the last ``@``; also where the ``//`` is missing."""
    found = _START.match(text)
    scheme, slashes, rest = found.groups() if found else ("", "", text)
    login, at, place = rest.rpartition("@")
    if at:
        user, has_password, _ = login.partition(":")
        if has_password:
            return f"{scheme}{slashes}{user}:{_HIDDEN}@{place}"
        if scheme and not slashes and "/" not in login:
            return f"{scheme}{_HIDDEN}@{place}"  # user:password@host, without a scheme
        return text
    authority, slash, path = rest.partition("/")
    if slashes and not rest.startswith("[") and not _HOSTS.fullmatch(authority):
        return f"{scheme}{slashes}{authority.partition(':')[0]}:{_HIDDEN}{slash}{path}"
    return text


def _hide_assigned(text: str) -> str:
    """``text`` with the values of ``password=value`` and the like hidden, as in drivers' connection strings."""

    def hide(found: re.Match[str]) -> str:
        name, equals, value = found.groups()
        return f"{name}{equals}{_HIDDEN if value and _is_secret(name) else value}"

    return _ASSIGNED.sub(hide, text)


def _shown_option(part: str) -> str:
    name, equals, value = part.partition("=")
    if not equals:
        return part
    if _is_secret(name):
        return f"{name}={_HIDDEN}"
    plain = unquote(value)
    shown = shown_url(plain) if ":" in plain or "=" in plain else plain
    return part if shown == plain else f"{name}={quote(shown, safe='/:*@?&=')}"


def _is_secret(name: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", unquote(unquote(name)).lower())
    return plain not in _NOT_SECRET and _SECRET_NAME.search(plain) is not None


def secrets_of(url: str | SplitResult) -> set[str]:
    """The password and the secret option values in ``url``, as written and percent-decoded."""
    text = _text_of(url)
    found = set(_secrets(text))
    return {form for secret in found for form in (secret, unquote(secret)) if form}


def _secrets(text: str) -> Iterator[str]:
    login = text.partition(":")[2].lstrip("/").rpartition("@")[0]
    yield login.partition(":")[2]
    authority = text.partition("//")[2].partition("/")[0]
    yield authority.rpartition("@")[0].partition(":")[2]
    for found in re.finditer(r"([^?&;#=]+)=([^&;#]*)", text):
        if _is_secret(found[1]):
            yield found[2]


def without_secrets(text: str, url: str | SplitResult) -> str:
    """``text``, such as a driver's message about ``url``, with every secret of the URL hidden in it."""
    for secret in sorted(secrets_of(url), key=len, reverse=True):
        if secret not in text:
            continue
        if len(secret) < _SHORTEST_REPLACED:
            return "(the message is left out: it may show a secret of the URL)"
        text = text.replace(secret, _HIDDEN)
    return text


def url_options(url: SplitResult, known: Collection[str]) -> dict[str, str]:
    """The options after ``?`` in ``url``, percent-decoded (a ``+`` is a plus).

    Raises:
        InvalidUrl: an option is not in ``known``, is given twice, has no value, is not UTF-8, or a ``#`` follows.
    """
    place = shown_url(url)
    hint = f"The options are: {', '.join(sorted(known))}." if known else "There are no options."
    if url.fragment:
        raise InvalidUrl(f"{place}: a URL of a backend has no #", hint="Write # as %23.")
    options: dict[str, str] = {}
    for part in filter(None, url.query.split("&")):
        name, equals, value = part.partition("=")
        try:
            name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
            readable = True
        except UnicodeDecodeError:
            readable = False  # and raised outside: the error holds the value
        if not readable:
            raise InvalidUrl(f"{place}: an option is not UTF-8 once its escapes are undone")
        if not equals:
            raise InvalidUrl(f"{place}: an option has no value", hint=f"Write name=value. {hint}")
        if name not in known:
            raise InvalidUrl(f"{place}: there is no option {name!r}", hint=hint)
        if name in options:
            raise InvalidUrl(f"{place}: the option {name!r} stands twice")
        options[name] = value
    return options


def local_path(url: SplitResult) -> str:
    """The path of the local file or directory that ``url`` names, percent-decoded.

    Raises:
        InvalidUrl: it names a host, has no path, or has a query or fragment.
    """
    shown = shown_url(url)
    if url.netloc not in ("", "localhost"):
        raise InvalidUrl(
            f"{shown}: the scheme {url.scheme!r} is for this machine, yet the URL names a host",
            hint=f"Write {url.scheme}:relative/path or {url.scheme}:///absolute/path.",
        )
    if not url.path:
        raise InvalidUrl(f"{shown}: the URL has no path")
    if url.query or url.fragment:
        raise InvalidUrl(
            f"{shown}: the scheme {url.scheme!r} takes no options",
            hint="Write ? and # in a path as %3F and %23.",
        )
    return unquote(url.path)


def local_url(scheme: str, path: str) -> str:
    """The URL of a local path, percent-encoded where necessary; the inverse of `local_path`.

    Raises:
        UsageError: the path is not text.
    """
    check_text(path, "a path")
    quoted = quote(path, safe="/:~+@,= ()")
    if quoted.startswith("//"):
        quoted = "/" + quoted.lstrip("/")
    return f"{scheme}:{quoted}"
