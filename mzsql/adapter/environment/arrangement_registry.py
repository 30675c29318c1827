"""The arrangement registry that compute needs: which shard holds which arrangement, in the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mzsql.catalog.change import Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.state import CatalogState
from mzsql.persist import PersistClient
from mzsql.repr.errors import Fenced
from mzsql.storage import end_shard


class CatalogArrangements:
    """The catalog's map from arrangements to shards: compute's `ArrangementRegistry`.

    Args:
        catalog: the environment's catalog.
        runs: whether, by a state of the catalog, this process is the one to run a replica. Without it, this process
            runs none.
    """

    def __init__(
        self,
        catalog: DurableCatalog,
        runs: Callable[[CatalogState, str], bool] = lambda _, __: False,
    ) -> None:
        self._catalog = catalog
        self._runs = runs

    def arrangement_shard(self, replica: str, fingerprint: str) -> str | None:
        """The shard of an arrangement, by the fingerprint of its definition; None where there is none."""
        return self._catalog.state.arrangements.get(f"{replica}/{fingerprint}")

    def update(self, replica: str, shards: Mapping[str, str | None]) -> None:
        """Set the shard of each fingerprint, or remove it where it is None, in one change of the catalog."""

        def command(state: CatalogState) -> tuple[Change, None]:
            named = {f"{replica}/{fingerprint}": shard for fingerprint, shard in shards.items()}
            return Change(
                arrangements={
                    name: shard
                    for name, shard in named.items()
                    if shard is not None or name in state.arrangements
                }
            ), None

        self._catalog.transact(command)

    def entries(self, replica: str) -> Mapping[str, str]:
        """Every fingerprint of the replica with its shard."""
        prefix = f"{replica}/"
        return {
            name.removeprefix(prefix): shard
            for name, shard in self._catalog.state.arrangements.items()
            if name.startswith(prefix)
        }

    def runs(self, replica: str) -> bool:
        """As `compute.dependencies.ArrangementRegistry`."""
        try:
            return self._runs(self._catalog.sync(), replica)
        except Fenced:
            return False

    def retire(self, persist: PersistClient) -> bool:
        """Retire and forget the shards of dropped objects and of dropped replicas.

        Returns:
            Whether none is left. A shard that somebody still reads is only retired; a later call forgets it.
        """
        state = self._catalog.state
        ended: list[str] = []
        left = False
        for name, shard in state.arrangements.items():
            replica = name.partition("/")[0]
            if replica in state.replicas:
                continue
            # The shard may not exist: a crash came between naming and creating it, or a table was never written. Holds
            # that the replica's dataflows have on its own arrangements end with the replica.
            if persist.exists(shard) and end_shard(persist, shard, holds=f"{replica}/"):
                left = True
            else:
                ended.append(name)
        if ended:

            def command(state: CatalogState) -> tuple[Change, None]:
                known = [name for name in ended if name in state.arrangements]
                return Change(arrangements=dict.fromkeys(known)), None

            self._catalog.transact(command)
        return not left
