"""What a pipeline file declares against what is stored, as differences.

Everything here is pure: the same declaration against the state it led to gives an empty difference, which is what
makes a parse without a change harmless.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from app.domain.specs import AssetKey, AssetSpec, DagSpec, TriggerSpec, WatcherSpec, condition_assets


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One use of an asset by a DAG. ``kind`` is ``schedule``, ``outlet`` or ``inlet`` (of ``task_id``)."""

    dag_id: str
    asset: AssetKey
    kind: str
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLink:
    """A watcher that a file declares on an asset, with the code version that declares it."""

    asset: AssetKey
    name: str
    trigger: TriggerSpec
    when: str | None
    schema: str | None
    bundle_digest: str

    @property
    def key(self) -> LinkKey:
        return self.asset, self.name, self.trigger.identity


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLink:
    """A stored link. ``bundle_digest`` is that of the file in question, None if only other files declare the link."""

    watcher_id: int
    asset: AssetKey
    name: str
    identity: str
    trigger_id: int
    when: str | None
    schema: str | None
    bundle_digest: str | None
    other_files: int

    @property
    def key(self) -> LinkKey:
        return self.asset, self.name, self.identity


LinkKey = tuple[AssetKey, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUpdate:
    """A link that stays, with its new name, filter and schema."""

    watcher_id: int
    name: str
    when: str | None
    schema: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDifference:
    """How to bring a file's links from known to wanted.

    ``created`` are links to make, each with the trigger whose positions it inherits (that of the watcher of the same
    asset and name which it replaces), if any; ``declared`` maps links to the code version that now declares them in
    this file; ``ended`` are links the file no longer declares.
    """

    created: tuple[tuple[WantedLink, int | None], ...] = ()
    updated: tuple[LinkUpdate, ...] = ()
    declared: Mapping[int, str]
    ended: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.declared or self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetUse:
    """An asset row, and whether any active DAG refers to it."""

    asset_id: int
    name: str
    uri: str
    is_active: bool
    is_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Assets to deactivate (first) and to activate (then)."""

    deactivate: tuple[int, ...] = ()
    activate: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deactivate or self.activate)


def references_of(dag: DagSpec) -> frozenset[Reference]:
    """Each use of an asset by the DAG, once."""
    found: set[Reference] = set()
    if dag.schedule.condition is not None:
        found.update(
            Reference(dag_id=dag.dag_id, asset=asset, kind="schedule")
            for asset in condition_assets(dag.schedule.condition)
        )
    for task in dag.tasks:
        for kind, assets in (("outlet", task.outlets), ("inlet", task.inlets)):
            found.update(Reference(dag_id=dag.dag_id, asset=asset, kind=kind, task_id=task.task_id) for asset in assets)
    return frozenset(found)


def stored_form(dag: DagSpec) -> DagSpec:
    """The DAG as it is stored and compared: without the arguments of triggers, which may be secret."""
    return msgspec.structs.replace(
        dag,
        tags=tuple(sorted(set(dag.tags))),
        assets=tuple(
            msgspec.structs.replace(asset, watchers=tuple(map(_without_kwargs, asset.watchers))) for asset in dag.assets
        ),
    )


def spec_digest(stored: DagSpec) -> str:
    """SHA-256 (hex) over a DAG in its stored form."""
    return hashlib.sha256(msgspec.json.encode(stored, order="deterministic")).hexdigest()


def assets_of(dags: Iterable[DagSpec]) -> dict[AssetKey, AssetSpec]:
    """Each asset that the DAGs mention, in the order of first mention, with the fullest declaration of it.

    A declaration with group, extra or watchers outweighs a mere mention; watchers of several declarations add up.
    """
    found: dict[AssetKey, AssetSpec] = {}
    for dag in dags:
        mentioned = [AssetSpec(name=use.asset.name, uri=use.asset.uri) for use in _in_order(references_of(dag))]
        for spec in (*dag.assets, *mentioned):
            key = AssetKey(name=spec.name, uri=spec.uri)
            found[key] = _merged(found[key], spec) if key in found else spec
    return found


def is_bare(spec: AssetSpec) -> bool:
    """Whether the asset is merely mentioned: nothing but name and uri."""
    return spec.group == "asset" and not spec.extra


def links_of(dags: Iterable[DagSpec], *, bundle_digest: str) -> dict[LinkKey, WantedLink]:
    """Each watcher that the DAGs declare, once, by asset, name and identity of its trigger."""
    found: dict[LinkKey, WantedLink] = {}
    for key, spec in assets_of(dags).items():
        for watcher in spec.watchers:
            link = WantedLink(
                asset=key,
                name=watcher.name,
                trigger=watcher.trigger,
                when=watcher.when,
                schema=watcher.schema,
                bundle_digest=bundle_digest,
            )
            found.setdefault(link.key, link)
    return found


def link_difference(known: Iterable[KnownLink], wanted: Mapping[LinkKey, WantedLink]) -> LinkDifference:
    """Compare a file's links. ``known`` holds all links of the assets concerned, whichever file declares them.

    A changed name, filter or schema alters the link and leaves its trigger alone; a name that other files still use is
    not taken from them.
    """
    stored = {link.key: link for link in known}
    gone = {key: link for key, link in stored.items() if link.bundle_digest is not None and key not in wanted}
    left = dict(gone)
    renamed: dict[tuple[AssetKey, str], deque[KnownLink]] = {}
    for old in gone.values():
        if not old.other_files:
            renamed.setdefault((old.asset, old.identity), deque()).append(old)
    replaced = {(link.asset, link.name): link.trigger_id for link in reversed(gone.values())}
    created: list[tuple[WantedLink, int | None]] = []
    updated: list[LinkUpdate] = []
    declared: dict[int, str] = {}
    for key, link in wanted.items():
        same = stored.get(key)
        if same is None and (others := renamed.get((link.asset, link.trigger.identity))):
            same = others.popleft()
        if same is None:
            created.append((link, replaced.get((link.asset, link.name))))
            continue
        left.pop(same.key, None)
        if (same.name, same.when, same.schema) != (link.name, link.when, link.schema):
            change = LinkUpdate(watcher_id=same.watcher_id, name=link.name, when=link.when, schema=link.schema)
            updated.append(change)
        if same.bundle_digest != link.bundle_digest:
            declared[same.watcher_id] = link.bundle_digest
    ended = tuple(sorted(link.watcher_id for link in left.values()))
    return LinkDifference(created=tuple(created), updated=tuple(updated), declared=declared, ended=ended)


def activation(assets: Iterable[AssetUse]) -> Activation:
    """At most one active asset per name and per uri: the active one keeps while it is used, then the oldest row."""
    ordered = sorted(assets, key=lambda asset: (not asset.is_active, asset.asset_id))
    kept = [asset for asset in ordered if asset.is_active and asset.is_used]
    names = {asset.name for asset in kept}
    uris = {asset.uri for asset in kept}
    activate: list[int] = []
    for asset in ordered:
        if asset.is_active or not asset.is_used or asset.name in names or asset.uri in uris:
            continue
        activate.append(asset.asset_id)
        names.add(asset.name)
        uris.add(asset.uri)
    deactivate = tuple(asset.asset_id for asset in ordered if asset.is_active and not asset.is_used)
    return Activation(deactivate=deactivate, activate=tuple(activate))


def _without_kwargs(watcher: WatcherSpec) -> WatcherSpec:
    return msgspec.structs.replace(watcher, trigger=msgspec.structs.replace(watcher.trigger, kwargs=""))


def _in_order(references: Iterable[Reference]) -> list[Reference]:
    return sorted(references, key=lambda use: (use.kind != "schedule", use.kind, use.asset.name, use.asset.uri))


def _merged(first: AssetSpec, second: AssetSpec) -> AssetSpec:
    fuller = second if is_bare(first) and not is_bare(second) else first
    extra_watchers = tuple(watcher for watcher in second.watchers if watcher not in first.watchers)
    return AssetSpec(
        name=first.name,
        uri=first.uri,
        group=fuller.group,
        extra=fuller.extra,
        watchers=(*first.watchers, *extra_watchers),
    )
