"""The optimizer's switches as the catalog has them."""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.expression_cache import Current, spell_features
from mzsql.catalog.settings import features_of
from mzsql.transform import OptimizerFeatures


class SystemFeatures:
    """The switches as ALTER SYSTEM has set them. Thread-safe.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._known: tuple[Mapping[str, str], OptimizerFeatures] | None = None

    def in_force(self) -> OptimizerFeatures:
        """The switches, as the catalog was seen last."""
        settings = self.env.catalog.state.settings
        known = self._known
        # A new catalog state shares unchanged settings with the old one, so identity tells whether they changed.
        if known is None or known[0] is not settings:
            known = self._known = settings, features_of(settings)
        return known[1]

    def current(self) -> Current:
        """The objects that exist with their versions, and the optimizer features in force."""
        state = self.env.catalog.sync()
        return {i.id: i.version for i in state.items.values()}, spell_features(self.in_force())
