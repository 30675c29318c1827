"""Which versions of mzsql may use a shard that another version has written.

Promise: a shard's state names the newest version that ever changed its contents. A program of a compatible or newer
version reads and writes the shard; any other refuses it with `NewerVersion` before changing anything, also if the
newer program came while the shard was open. Versions with equal major and minor numbers are compatible: between them
durable structs do not change, because a program that does not know a field would drop it from the next rollup. A
version that raises the minor number may append fields; the first change that such a program makes to a shard's
contents takes the shard over for good. Reading does not take it over, nor do leases or maintenance, nor anything by
a client that has not taken over yet (`PersistClient.take_over`), such as one that waits to be promoted: until then
the older program goes on.

Trade-off: what a program writes to a shard of an older version that it has not taken over must be understood by that
older version.
"""

from __future__ import annotations

import functools
import re
from typing import TypeAlias

from mzsql.persist.errors import CorruptPart, NewerVersion

_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

Release: TypeAlias = tuple[int, int, int]


@functools.lru_cache(maxsize=256)
def release(version: str) -> Release:
    """Return the major, minor and patch number of a version's text, ignoring what follows them. Empty text is older
    than every version.

    Raises:
        CorruptPart: the text is not a version.
    """
    if not version:
        return (0, 0, 0)
    found = _RELEASE.match(version)
    if found is None:
        raise CorruptPart(f"not a version of mzsql: {version!r}")
    major, minor, patch = (int(number or 0) for number in found.groups())
    return (major, minor, patch)


def newer(version: str, other: str) -> bool:
    """Whether ``version`` is newer than ``other``."""
    return release(version) > release(other)


def check_version(ours: str, wrote: str, what: str) -> None:
    """Check that a program of version ``ours`` may use what version ``wrote`` has written.

    Raises:
        NewerVersion: it may not.
    """
    if release(wrote)[:2] > release(ours)[:2]:
        raise NewerVersion(
            f"{what} was written by mzsql {wrote}, which this one, {ours}, must not touch",
            hint=f"Upgrade mzsql to {wrote} or later.",
        )
