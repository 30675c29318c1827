"""Which versions of mzsql may touch a shard that another one has written.

Promise: a shard's state names the newest version that ever changed what it holds. A program whose version is compatible with that one,
or newer, reads and writes the shard; any other refuses it with `NewerVersion` before it has changed anything, also when the newer one came
while the shard was open. Compatible are versions of equal major and minor number: between them durable structs do not change, as a program
that does not know a field would drop it from the next rollup. Whoever raises the minor number may append fields; the first change that
such a program makes to what a shard holds takes the shard over for good. Reading does not, nor leasing, nor upkeep, nor what a client
does that has not taken over yet (`PersistClient.take_over`), as one that waits to be promoted: until then the older program goes on.

Trade-off: so what a program writes to a shard of an older version, and has not taken over, may say nothing that this does not know.
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
    """Major, minor and patch number of a version's text; what follows them is ignored. Empty text is older than every version.

    Raises:
        CorruptPart: the text is no version.
    """
    if not version:
        return (0, 0, 0)
    found = _RELEASE.match(version)
    if found is None:
        raise CorruptPart(f"not a version of mzsql: {version!r}")
    major, minor, patch = (int(number or 0) for number in found.groups())
    return (major, minor, patch)


def newer(version: str, other: str) -> bool:
    """Whether ``version`` came after ``other``."""
    return release(version) > release(other)


def check_version(ours: str, wrote: str, what: str) -> None:
    """Check that a program of version ``ours`` may touch what version ``wrote`` has written.

    Raises:
        NewerVersion: it may not.
    """
    if release(wrote)[:2] > release(ours)[:2]:
        raise NewerVersion(
            f"{what} was written by mzsql {wrote}, which this one, {ours}, must not touch",
            hint=f"Upgrade mzsql to {wrote} or later.",
        )
