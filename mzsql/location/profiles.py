"""Profiles: names for environments, so that neither a plan nor a command line has to show a password.

Promise: a profile names a directory, or the URLs of blob, consensus and oracle. It is found in the file ``mzsql.toml`` (the one that the
variable MZSQL_CONFIG names, else that of the working directory, else ``~/.config/mzsql/mzsql.toml``) or in variables of the
environment, which count for more:

    [profiles.prod]                                             MZSQL_PROFILE_PROD_BLOB=s3://bucket/prefix
    blob = "s3://bucket/prefix"                                 MZSQL_PROFILE_PROD_CONSENSUS=postgres://…
    consensus = "postgres://app:${PG_PASSWORD}@host/db"         MZSQL_PROFILE_PROD_ORACLE=postgres://…
    oracle = "postgres://app:${PG_PASSWORD}@host/db"            MZSQL_PROFILE_PROD_ENV=/path/to/env

``${NAME}`` in the file stands for a variable of the environment. Wherever an environment is named, ``profile:prod`` stands for the
profile. It is read anew each time, so that each process (an executor) has its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mzsql.location.errors import InvalidUrl
from mzsql.location.urls import check_text, shown_url

SCHEME = "profile:"
_CONFIG = "MZSQL_CONFIG"
_FILE = "mzsql.toml"
_KINDS = ("env", "blob", "consensus", "oracle")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAME = re.compile(r"[\w-]+")


class Profile(msgspec.Struct, frozen=True):
    """The stores that a profile names; `source` says where it was found."""

    name: str
    source: str
    env: str | None = None
    blob: str | None = None
    consensus: str | None = None
    oracle: str | None = None

    def __repr__(self) -> str:
        places = [(kind, getattr(self, kind)) for kind in _KINDS]
        shown = ", ".join(f"{kind}={shown_url(url)!r}" for kind, url in places if url is not None)
        return f"Profile({self.name!r}, {shown})"


def profile(
    name: str, variables: Mapping[str, str] | None = None, *, only: str | None = None
) -> Profile:
    """The profile with this name.

    Args:
        name: letters, digits, ``_`` and ``-``.
        variables: the environment variables; this process's by default.
        only: the only kind that is needed: an executor that opens the Blob store need not have the variables in the
            Consensus store's URL.

    Raises:
        InvalidUrl: there is none, or it is malformed.
    """
    variables = os.environ if variables is None else variables
    check_text(name, "the name of a profile")
    if not _NAME.fullmatch(name):
        raise InvalidUrl(
            f"not the name of a profile: {name!r}",
            hint="A name has letters, digits, _ and - only.",
        )
    path = _file(variables)
    written = {} if path is None else _profiles(path).get(name, {})
    source = str(path)
    prefix = f"MZSQL_PROFILE_{name.upper().replace('-', '_')}_"
    given = {kind: url for kind in _KINDS if (url := variables.get(prefix + kind.upper()))}
    if given:
        source = f"{prefix}*"
    found = _checked(f"profile {name!r} in {path}", written) | given
    if not found:
        raise InvalidUrl(
            f"there is no profile {name!r}"
            + (f" in {path}" if path is not None else f": there is no {_FILE}"),
            hint=f"Write [profiles.{name}] with blob, consensus and oracle into {_FILE}, or set {prefix}BLOB, {prefix}CONSENSUS "
            f"and {prefix}ORACLE.",
        )
    if "env" in found and len(found) > 1:
        raise InvalidUrl(
            f"profile {name!r} ({source}) names both a directory and URLs",
            hint="Leave env, or blob, consensus and oracle.",
        )
    for kind in sorted(set(written) - set(given)):
        if only not in (None, kind):
            continue
        found[kind] = _filled(f"profile {name!r} in {path}", written[kind], variables)
    return Profile(name, source, **{k: url for k, url in found.items() if only in (None, k)})


def _file(variables: Mapping[str, str]) -> Path | None:
    named = variables.get(_CONFIG)
    if named:
        try:
            there = Path(named).is_file()
        except OSError as failure:
            raise InvalidUrl(f"{_CONFIG} names no file: {failure.strerror}") from None
        if not there:
            raise InvalidUrl(f"{_CONFIG} names {named}, which is no file")
        return Path(named)
    places = [Path(_FILE), Path.home() / ".config" / "mzsql" / _FILE]
    return next((place for place in places if place.is_file()), None)


def _profiles(path: Path) -> dict[str, dict[str, str]]:
    """Every profile in the file, unprocessed."""
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
        return msgspec.convert(read.get("profiles", {}), dict[str, dict[str, str]])
    except (
        OSError,
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
        msgspec.ValidationError,
    ) as failure:
        raise InvalidUrl(f"{path} cannot be read: {failure}") from None
    except RecursionError:
        raise InvalidUrl(f"{path} cannot be read: it nests too deeply") from None


def _checked(what: str, entries: Mapping[str, str]) -> dict[str, str]:
    """The entries of a profile in a file, after checking their names."""
    unknown = sorted(set(entries) - set(_KINDS))
    if unknown:
        raise InvalidUrl(f"{what} has {unknown[0]!r}, which is none of {', '.join(_KINDS)}")
    return dict(entries)


def _filled(what: str, text: str, variables: Mapping[str, str]) -> str:
    """An entry with its environment variables substituted."""

    def value(found: re.Match[str]) -> str:
        known = variables.get(found[1])
        if known is None:
            raise InvalidUrl(
                f"{what} asks for the variable {found[1]}, which is not set",
                hint=f"Set {found[1]} in the environment of every process that uses the profile.",
            )
        return known

    return _VARIABLE.sub(value, text)


def resolved(place: str, kind: str) -> str:
    """The URL of a backend of ``kind``: ``place`` itself, or the one in the profile that it names.

    Raises:
        InvalidUrl: there is no such profile, or it has no URL of this kind.
    """
    if not place.startswith(SCHEME):
        return place
    found = profile(place.removeprefix(SCHEME), only=kind)
    url: str | None = getattr(found, kind)
    if url is None:
        raise InvalidUrl(f"profile {found.name!r} ({found.source}) names no {kind}")
    return url


def nameable(url: str) -> str | None:
    """``url`` if it has no secrets, else ``profile:NAME`` of a profile with this Blob store; None where there is
    neither.
    """
    if shown_url(url) == url:
        return url
    for name in _names(os.environ):
        with contextlib.suppress(
            InvalidUrl
        ):  # of others than this environment's, nothing need be right
            if profile(name, only="blob").blob == url:
                return SCHEME + name
    return None


def _names(variables: Mapping[str, str]) -> list[str]:
    path = _file(variables)
    names = [] if path is None else sorted(_profiles(path))
    found = (re.fullmatch(r"MZSQL_PROFILE_(\w+)_BLOB", variable) for variable in variables)
    return names + [match[1].lower() for match in found if match]
