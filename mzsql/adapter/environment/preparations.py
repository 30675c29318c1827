"""What a deployment that waits for promotion prepares: entries of its own build in the expression cache.

Promise: nothing of it enters the catalog, or a shard of the deployment in charge, before `take_over` adds it in one
change after the promotion; `discard` removes it all, arrangements included. One process at a time prepares for a build
(`claim`). Processes of other builds read these entries too, so every version encodes them alike.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterable, Mapping

import msgspec

from mzsql.adapter.environment.cache_entries import ARRANGEMENT, CHARGE, STANDING, WAITING
from mzsql.adapter.environment.expression_cache import (
    DEPLOYMENT,
    ExpressionCache,
    entry_key,
    parts_of,
)
from mzsql.adapter.environment.leader import LEASE_MS, is_gone, this_process
from mzsql.catalog.change import Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.durable_map import Change as Entries
from mzsql.catalog.state import CatalogState
from mzsql.persist import CRITICAL, Clock, PersistClient
from mzsql.render.nodes.naming import FILLING
from mzsql.repr.errors import ObjectInUse
from mzsql.repr.ids import GlobalId

#: The preparing process writes a heartbeat so often, in milliseconds.
BEAT_MS = LEASE_MS // 3


class Waiting(msgspec.Struct, frozen=True):
    """The process that prepares a waiting deployment.

    Attributes:
        generation: its deploy generation.
        who: the process, as `leader.this_process` names it; empty once it has stopped.
        token: identifies one opening of the environment by that process.
        beat: counts its heartbeats.
    """

    generation: int
    who: str
    token: str
    beat: int = 0

    @property
    def gone(self) -> bool:
        """Whether the process certainly prepares no more."""
        return not self.who or is_gone(self.who)


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """How far a waiting deployment is with one object.

    Attributes:
        caught_up: whether promotion need not wait for the object.
        why: the reason, for people.
        settled: whether waiting longer changes nothing: if caught up, the object is hydrated only after promotion; if
            not, it cannot be run.
    """

    caught_up: bool
    why: str
    settled: bool = False


UNKNOWN = Standing(False, "nothing is known of it")
"""The standing of an object for which no waiting deployment has recorded one."""


class Prepared(msgspec.Struct, frozen=True):
    """What one build has prepared.

    Attributes:
        build: the build.
        waiting: the process that prepares it; None where none does any more.
        standings: how far it is, by object.
        arrangements: shards by ``replica/name``, as in the catalog.
    """

    build: str
    waiting: Waiting | None
    standings: dict[GlobalId, Standing]
    arrangements: dict[str, str]

    @property
    def alive(self) -> bool:
        """Whether the preparing process may still exist."""
        return self.waiting is not None and not self.waiting.gone


class Preparations:
    """The preparations in one environment, as this process reads and writes them. Thread-safe but for `claim`.

    Args:
        cache: the expression cache, whose shard holds them.
        catalog: the environment's catalog.
        persist: retires shards.
        clock: its monotonic time measures heartbeats.
        token: identifies this opening of the environment.
    """

    def __init__(
        self,
        cache: ExpressionCache,
        catalog: DurableCatalog,
        persist: PersistClient,
        clock: Clock,
        token: str,
    ) -> None:
        self._cache = cache
        self._catalog = catalog
        self._persist = persist
        self._clock = clock
        self._token = token
        self._beaten = float("-inf")
        self._claimed = False
        # This build's arrangements, read once: only the process that holds the claim writes them.
        self._named: dict[str, str] | None = None
        # Another process's claim as last seen, and since when it has not changed (monotonic seconds).
        self._watched: Waiting | None = None
        self._watched_since = 0.0

    # --- who prepares -------------------------------------------------------------------------

    def claim(self, generation: int) -> bool:
        """Take or renew the right to prepare for this build, where that is possible and due; whether this process has
        it.
        """
        now = self._clock.monotonic()
        if self._claimed and (now - self._beaten) * 1000 < BEAT_MS:
            return True
        entries = self._cache.all_entries()
        seen = _waiting(entries.get(self._key(DEPLOYMENT, WAITING)))
        if seen is not None and not self._is_free(seen, generation, now):
            self._claimed = False
            return False
        beat = 0 if seen is None else seen.beat + 1
        ours = Waiting(generation, this_process(), self._token, beat)
        key, value = self._key(DEPLOYMENT, WAITING), msgspec.json.encode(ours)
        taken: list[bool] = []

        def take(entries: Mapping[str, bytes]) -> Entries:
            taken[:] = [_waiting(entries.get(key)) == seen]
            return {key: value} if taken[0] else {}

        self._cache.change(take)
        if not self._claimed:
            self._named = None
        self._claimed, self._beaten = taken[0], now
        return taken[0]

    def _is_free(self, seen: Waiting, generation: int, now: float) -> bool:
        if seen.token == self._token or seen.generation < generation or seen.gone:
            return True
        if seen != self._watched:
            self._watched, self._watched_since = seen, now
        return (now - self._watched_since) * 1000 >= LEASE_MS

    def _key(self, name: str, kind: str) -> str:
        return entry_key(self._cache.build, GlobalId(name), kind)

    # --- what it says -------------------------------------------------------------------------

    def tell(self, standings: Mapping[GlobalId, Standing | None]) -> None:
        """Record how far this build is with objects; None removes an object's record."""
        told = {
            self._key(gid, STANDING): None if one is None else msgspec.json.encode(one)
            for gid, one in standings.items()
        }
        self._cache.change(
            lambda entries: {k: v for k, v in told.items() if v is not None or k in entries}
        )

    def all(self) -> list[Prepared]:
        """What every build has prepared, as of now."""
        found: dict[str, Prepared] = {}
        for key, value in self._cache.all_entries().items():
            build, name, kind = parts_of(key)
            if kind not in (WAITING, STANDING, ARRANGEMENT):
                continue
            one = found.get(build) or Prepared(build, None, {}, {})
            if kind == WAITING:
                one = msgspec.structs.replace(one, waiting=_waiting(value))
            elif kind == STANDING:
                # A record that cannot be decoded counts as absent.
                with contextlib.suppress(msgspec.MsgspecError):
                    one.standings[name] = msgspec.json.decode(value, type=Standing)
            else:
                one.arrangements[urllib.parse.unquote(name)] = value.decode(errors="replace")
            found[build] = one
        return list(found.values())

    def of(self, generation: int) -> Prepared | None:
        """What is prepared for a deploy generation; of several builds the one whose process is alive."""
        wanted = [
            one
            for one in self.all()
            if one.waiting is not None and one.waiting.generation == generation
        ]
        return max(wanted, key=lambda one: one.alive, default=None)

    def standings(self, state: CatalogState, generation: int) -> dict[str, Standing]:
        """How far a deploy generation is with each maintained object, by name: `UNKNOWN` where nobody prepares it any
        more.
        """
        prepared = self.of(generation)
        told = {} if prepared is None or not prepared.alive else prepared.standings
        return {item.full_name: told.get(item.id, UNKNOWN) for item in state.maintained}

    def lacking(self, state: CatalogState, generation: int) -> dict[str, Standing]:
        """The objects that a deploy generation has not caught up with, by name."""
        found = self.standings(state, generation)
        return {name: one for name, one in found.items() if not one.caught_up}

    # --- arrangements -------------------------------------------------------------------------

    def arrangement_shard(self, replica: str, fingerprint: str) -> str | None:
        """As `compute.dependencies.ArrangementRegistry`."""
        return self._arrangements().get(f"{replica}/{fingerprint}")

    def update(self, replica: str, shards: Mapping[str, str | None]) -> None:
        """As `compute.dependencies.ArrangementRegistry`."""
        told = {
            self._key(urllib.parse.quote(f"{replica}/{name}", safe=""), ARRANGEMENT): (
                None if shard is None else shard.encode()
            )
            for name, shard in shards.items()
        }
        self._cache.change(
            lambda entries: {k: v for k, v in told.items() if v is not None or k in entries}
        )
        named = self._arrangements()
        for name, shard in shards.items():
            if shard is None:
                named.pop(f"{replica}/{name}", None)
            else:
                named[f"{replica}/{name}"] = shard

    def entries(self, replica: str) -> Mapping[str, str]:
        """As `compute.dependencies.ArrangementRegistry`."""
        prefix = f"{replica}/"
        found = self._arrangements()
        return {k.removeprefix(prefix): v for k, v in tuple(found.items()) if k.startswith(prefix)}

    def runs(self, replica: str) -> bool:  # noqa: ARG002  who prepares for a build runs all of its replicas
        """As `compute.dependencies.ArrangementRegistry`: whether no other process of this build has taken the claim."""
        seen = _waiting(self._cache.all_entries().get(self._key(DEPLOYMENT, WAITING)))
        return seen is not None and bool(seen.who) and seen.token == self._token

    def _arrangements(self) -> dict[str, str]:
        if self._named is None:
            ours = (one.arrangements for one in self.all() if one.build == self._cache.build)
            self._named = next(ours, {})
        return self._named

    # --- the end of waiting -------------------------------------------------------------------

    def take_over(self, generation: int) -> None:
        """Move what this build has prepared into the catalog after the promotion, and remove what other builds have
        left.

        Preparations for a higher generation stay. Idempotent: a crash in the middle loses nothing, and another call
        completes it. Where the deployment in charge before had an arrangement of the same name, that one is kept, since
        others may read it.
        """
        ours: dict[str, str] = {}
        others: dict[str, str] = {}
        waits: set[str] = set()
        for one in self.all():
            if one.waiting is not None and one.waiting.generation > generation:
                waits.add(one.build)
            elif one.build == self._cache.build:
                ours |= one.arrangements
            else:
                others |= one.arrangements
        if ours or others:
            self._catalog.transact(lambda state: (_adopted(state, ours, others), None))
        self._cache.change(lambda entries: self._without(entries, waits))

    def _without(self, entries: Mapping[str, bytes], waits: Iterable[str]) -> Entries:
        """The change that removes entries once this build is in charge."""
        ours, kept = self._cache.build, set(waits)
        charge = self._key(DEPLOYMENT, CHARGE)
        gone: dict[str, bytes | None] = {}
        for key in entries:
            build, _, kind = parts_of(key)
            of_waiting = kind in (WAITING, STANDING, ARRANGEMENT)
            if build not in kept and (build != ours or of_waiting):
                gone[key] = None
        return gone if charge in entries else {**gone, charge: b"{}"}

    def in_charge(self) -> bool:
        """Whether this build is the one in charge."""
        return self._key(DEPLOYMENT, CHARGE) in self._cache.all_entries()

    def discard(self) -> tuple[int, int]:
        """Remove what this build has prepared, since it is not to be promoted.

        Returns:
            How many plans and how many arrangements were removed.

        Raises:
            ObjectInUse: this build is in charge, so its plans are running; or a process of it still prepares, or still
                reads an arrangement.
        """
        build = self._cache.build
        if self.in_charge():
            raise ObjectInUse(
                f"mzsql {build} is in charge: its plans are those that run, and are not discarded",
                hint="Run the command by the program that was opened beside it.",
            )
        found = next((one for one in self.all() if one.build == build), None)
        if found is not None and found.waiting is not None and self._lives(found.waiting):
            raise ObjectInUse(
                f"process {found.waiting.who} still waits for deploy generation {found.waiting.generation}",
                hint="End it first.",
            )
        shards = {} if found is None else found.arrangements
        for shard in set(shards.values()):
            self._end(shard)
        plans = 0

        def change(entries: Mapping[str, bytes]) -> Entries:
            nonlocal plans
            mine = [key for key in entries if parts_of(key)[0] == build]
            plans = sum(parts_of(k)[2] not in (WAITING, STANDING, ARRANGEMENT) for k in mine)
            return dict.fromkeys(mine)

        self._cache.change(change)
        return plans, len(set(shards.values()))

    def _lives(self, waiting: Waiting) -> bool:
        """Whether a process may still exist. For one on another machine this waits for a heartbeat, 2 * `BEAT_MS`
        milliseconds.
        """
        if waiting.gone:
            return False
        if waiting.who.rpartition(" ")[0] == this_process().rpartition(" ")[0]:
            return True
        self._clock.sleep(2 * BEAT_MS / 1000)
        now = _waiting(self._cache.all_entries().get(self._key(DEPLOYMENT, WAITING)))
        return now is not None and now != waiting

    def _end(self, shard: str) -> None:
        """Retire an arrangement's shard. Critical holds are those of the discarded dataflows; a killed process's leases
        expire.
        """
        if not self._persist.exists(shard):
            return
        for holder in self._persist.retire(shard):
            if holder.kind == CRITICAL:
                self._persist.open_critical_reader(shard, holder.id).release()
        self._persist.retire(shard)

    def released(self) -> None:
        """Give up the claim without a promotion, so that another process may prepare."""
        if not self._claimed:
            return
        self._claimed = False
        key = self._key(DEPLOYMENT, WAITING)

        def change(entries: Mapping[str, bytes]) -> Entries:
            seen = _waiting(entries.get(key))
            if seen is None or seen.token != self._token:
                return {}
            return {key: msgspec.json.encode(msgspec.structs.replace(seen, who=""))}

        self._cache.change(change)


def _adopted(state: CatalogState, ours: Mapping[str, str], others: Mapping[str, str]) -> Change:
    """The change that names the prepared arrangements to go on with, and marks those that nobody needs for retirement."""
    named: dict[str, str | None] = {}
    known = set(state.arrangements.values())
    for name, shard in ours.items():
        if shard in known:
            continue
        if state.arrangements.get(name) is None:
            named[name] = shard
        else:
            named |= _to_be_ended(name, shard)
    for name, shard in others.items():
        if shard not in known:
            named |= _to_be_ended(name, shard)
    return Change(arrangements=named)


def _to_be_ended(name: str, shard: str) -> dict[str, str]:
    return {f"{name.partition('/')[0]}/{FILLING}{shard}": shard}


def _waiting(value: bytes | None) -> Waiting | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Waiting)
    except msgspec.MsgspecError:
        # The holder is unknown, so treat it as if its process had ended.
        return Waiting(-1, "", "")
