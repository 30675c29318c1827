"""The location for ``mzsql inspect`` and ``mzsql maintain``: an environment's directory, or the URLs of a persist
location.

Promise: opening creates nothing; a path where nothing exists is refused. If the location holds an environment, its
catalog is read, without a lease, for the owners of shards and for what its write-ahead log still holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.adapter.environment.locations import BLOB_MARKER, locate, refuse_newer
from mzsql.catalog.durable import peek_catalog
from mzsql.catalog.state import CatalogState
from mzsql.location import local_path, shown_url, split_url
from mzsql.location.keys import shard_keys
from mzsql.persist import PersistClient, Settings
from mzsql.repr.errors import EnvironmentRefused, InvalidParameter, UndefinedObject
from mzsql.storage import log_shard_of, unapplied_keys


class Place(msgspec.Struct, frozen=True):
    """An open location, with the ``catalog`` of the environment it holds, if any."""

    client: PersistClient
    catalog: CatalogState | None

    def owners(self) -> dict[str, str]:
        """The owner of each shard that the catalog knows."""
        state = self.catalog
        if state is None:
            return {}
        known = {CATALOG_SHARD: "the catalog"}
        if state.meta is not None:
            known[state.meta.wal_shard] = "the tables' write-ahead log"
            known[log_shard_of(state.meta.wal_shard)] = "the log of views and indexes"
            known[state.meta.cache_shard] = "the expression cache"
        known |= {item.shard: f"{item.kind} {item.full_name}" for item in state.stored}
        known |= {shard: f"source {name}" for name, shard in state.managed.items()}
        for name, shard in state.arrangements.items():
            replica, _, fingerprint = name.partition("/")
            known[shard] = f"arrangement {fingerprint[:12]} of replica {replica}"
        return known

    def shard_named(self, name: str) -> str:
        """The shard with this id, or of the object with this full name, or with this last part of its name if it is
        unique.

        Raises:
            UndefinedObject: there is none, or more than one.
        """
        if name in shard_keys(self.client.consensus.list_keys()):
            return name
        owners = self.owners()
        matching = [s for s, owner in owners.items() if name in (owner, owner.partition(" ")[2])]
        matching = matching or [s for s, owner in owners.items() if owner.endswith(f".{name}")]
        if len(matching) > 1:
            raise UndefinedObject(
                f"there is more than one shard {name}",
                hint=f"Name one of {', '.join(sorted(owners[shard] for shard in matching))}.",
            )
        if not matching:
            raise UndefinedObject(
                f"there is no shard {name}",
                hint="Name a shard by its id, or an object of the environment by its full name; "
                "`mzsql inspect` without --shard lists them.",
            )
        return matching[0]

    def protected(self) -> frozenset[str]:
        """The keys of Blob objects that the environment's write-ahead log holds for tables' shards."""
        # An environment may have been created since the place was opened; once it exists its log stays the same.
        catalog = self.catalog or peek_catalog(self.client, CATALOG_SHARD)
        if catalog is None or catalog.meta is None:
            return frozenset({BLOB_MARKER})
        return unapplied_keys(self.client, catalog.meta.wal_shard) | {BLOB_MARKER}


@contextlib.contextmanager
def open_place(
    env: Path | None,
    blob: str | None,
    consensus: str | None,
    *,
    background: bool = False,
    settings: Settings | None = None,
) -> Iterator[Place]:
    """The environment in a directory, or the location at two URLs, for the duration of the block.

    Args:
        env: the environment's directory.
        blob: the URL of the Blob store.
        consensus: the URL of the Consensus store.
        background: whether the client does maintenance in the background.
        settings: the client's settings.

    Raises:
        InvalidParameter: neither, both, or only one URL is given.
        EnvironmentRefused: nothing is there, or something else, or an environment of a newer format.
    """
    if env is not None and (blob is not None or consensus is not None):
        raise InvalidParameter("give either an environment's directory or --blob and --consensus")
    if env is not None:
        locations = locate(env, create=False)
        blob, consensus = locations.blob, locations.consensus
    if blob is None or consensus is None:
        raise InvalidParameter(
            "give an environment's directory, or both --blob and --consensus",
            hint="mzsql inspect ./env, or mzsql inspect --blob file:./blob --consensus sqlite:./consensus.db",
        )
    for url in (blob, consensus):
        _require_there(url)
    with PersistClient.open(
        blob=blob, consensus=consensus, background=background, settings=settings
    ) as client:
        catalog = peek_catalog(client, CATALOG_SHARD)
        if catalog is not None and catalog.meta is not None:
            # A URL may contain a password, so it is not shown.
            where = "the environment there" if env is None else str(env)
            refuse_newer(catalog.meta.format_version, where)
        yield Place(client, catalog)


def _require_there(url: str) -> None:
    """Refuse a local URL where nothing exists, because opening it would create it."""
    split = split_url(url)
    if split.scheme in ("file", "sqlite") and not Path(local_path(split)).exists():
        raise EnvironmentRefused(f"there is nothing at {shown_url(url)}", hint="Check the URL.")
