"""Parses ``s3://bucket/prefix?option=value&…``: where the objects are, and how to talk to the server.

Promise: any error in a URL is an `InvalidUrl` that names the part and shows no secret; credentials may not be in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeVar, cast, get_args
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from mzsql.location import InvalidUrl, UsageError, shown_url, url_options
from mzsql.location.keys import check_blob_key

T = TypeVar("T")
Addressing = Literal["auto", "path", "virtual"]
Checksums = Literal["crc32", "md5"]
Conditional = Literal["auto", "never"]

MIB = 1024 * 1024
LEAST_PART = 5 * MIB
"""S3's minimum size of a part other than the last."""
MOST_PARTS = 10_000
MOST_OBJECT = 5 * 1024 * 1024 * MIB
MOST_PUT = 5 * 1024 * MIB
"""S3's maximum size of one PutObject."""
MOST_KEY = 1024
"""S3's maximum length of a key in bytes of UTF-8, prefix included."""

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_UNSENDABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ufffe\uffff\ud800-\udfff]")


class Options(msgspec.Struct, frozen=True):
    """How to talk to the server; times in seconds, sizes in bytes."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    addressing: Addressing = "auto"
    checksums: Checksums = "crc32"
    conditional: Conditional = "auto"
    connect_timeout: float = 5.0
    read_timeout: float = 15.0
    timeout: float = 45.0
    attempts: int = 8
    concurrency: int = 16
    multipart_threshold: int = 16 * MIB
    part_size: int = 8 * MIB


class Place(msgspec.Struct, frozen=True):
    """The objects' location: below ``prefix`` (without outer slashes, may be empty) in ``bucket``; ``url`` is for
    users.
    """

    bucket: str
    prefix: str
    options: Options
    url: str

    def object_key(self, key: str) -> str:
        """The S3 key for a Blob key.

        Raises:
            UsageError: it is no key, or S3 does not take it.
        """
        check_blob_key(key)
        found = self.below(key)
        if _UNSENDABLE.search(key) or len(found.encode()) > MOST_KEY:
            raise UsageError(
                f"not a key for {self.url}: {key!r}",
                hint=f"S3 takes at most {MOST_KEY} bytes of UTF-8 with the prefix, and here no control characters.",
            )
        return found

    def below(self, text: str) -> str:
        """``text`` below the prefix."""
        return f"{self.prefix}/{text}" if self.prefix else text

    def blob_key(self, object_key: str) -> str | None:
        """The Blob key for an S3 key; `None` if it is none, such as a directory's marker."""
        start = len(self.below(""))
        key = object_key[start:]
        try:
            return check_blob_key(key) if object_key[:start] == self.below("") else None
        except UsageError:
            return None


def place_of(url: SplitResult) -> Place:
    """The place and options in a URL.

    Raises:
        InvalidUrl: it has no bucket, or has credentials, or an unknown or invalid option.
    """
    shown = shown_url(url)
    if "@" in url.netloc:
        raise InvalidUrl(
            f"{_without_login(url)}: credentials have no place in the URL of a bucket",
            hint="Have them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), in a profile (?profile=name), "
            "or by the machine's role.",
        )
    if not _BUCKET.fullmatch(url.netloc):
        raise InvalidUrl(
            f"{shown}: the name of a bucket has to follow s3://",
            hint="Write s3://bucket/prefix; the server's address is an option: ?endpoint=http://host:9000.",
        )
    prefix = unquote(url.path).strip("/")
    if prefix:
        try:
            check_blob_key(prefix)
        except UsageError as failure:
            raise InvalidUrl(f"{shown}: not a prefix of keys: {prefix!r}") from failure
        if _UNSENDABLE.search(prefix):
            raise InvalidUrl(f"{shown}: the prefix has a character that S3 cannot take")
    given = url_options(url, KNOWN)
    values = {name: _READ[name](shown, name, value) for name, value in given.items()}
    options = msgspec.convert(values, Options, strict=False)
    if options.multipart_threshold > MOST_PUT:
        raise InvalidUrl(f"{shown}: multipart_threshold can be at most {MOST_PUT}")
    return Place(url.netloc, prefix, options, shown)


def _without_login(url: SplitResult) -> str:
    return f"{url.scheme}://***@{url.netloc.rpartition('@')[2]}{url.path}"


def _text(shown: str, name: str, value: str) -> str:
    if not value:
        raise InvalidUrl(f"{shown}: the option {name} is empty")
    return value


def _endpoint(shown: str, name: str, value: str) -> str:
    if "@" in value:
        raise InvalidUrl(
            f"{shown.partition('?')[0]}: credentials have no place in the endpoint",
            hint="Have them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or in a profile (?profile=name).",
        )
    try:
        split = urlsplit(value)
        right = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
        right = right and split.path in ("", "/") and not split.query and not split.fragment
    except ValueError:
        right = False
    if not right:
        raise InvalidUrl(
            f"{shown}: the option {name} is no address of a server",
            hint="Write endpoint=http://host:port or endpoint=https://host.",
        )
    return value.rstrip("/")


def _one_of(among: object) -> Callable[[str, str, str], str]:
    def read(shown: str, name: str, value: str) -> str:
        if value not in get_args(among):
            raise InvalidUrl(
                f"{shown}: the option {name} is one of {', '.join(get_args(among))}, not {value!r}"
            )
        return value

    return read


def _number(of: type[T], least: float, most: float) -> Callable[[str, str, str], T]:
    def read(shown: str, name: str, value: str) -> T:
        try:
            found = of(value)  # type: ignore[call-arg]
            right = least <= cast("float", found) <= most
        except ValueError:
            right = False
        if not right:
            kind = "a whole number" if of is int else "a number"
            raise InvalidUrl(
                f"{shown}: the option {name} is {kind} from {least:g} to {most:g}, not {value!r}"
            )
        return found

    return read


_READ: dict[str, Callable[[str, str, str], object]] = {
    "endpoint": _endpoint,
    "region": _text,
    "profile": _text,
    "addressing": _one_of(Addressing),
    "checksums": _one_of(Checksums),
    "conditional": _one_of(Conditional),
    "connect_timeout": _number(float, 0.1, 300),
    "read_timeout": _number(float, 0.1, 3600),
    "timeout": _number(float, 0.1, 24 * 3600),
    "attempts": _number(int, 1, 100),
    "concurrency": _number(int, 1, 1000),
    "multipart_threshold": _number(int, LEAST_PART, MOST_PUT),
    "part_size": _number(int, LEAST_PART, MOST_PUT),
}
KNOWN = tuple(_READ)
