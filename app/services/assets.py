"""Assets, references, watchers and triggers of a pipeline file, brought to what it declares.

Done in two steps inside one transaction that holds the declaration lock: :func:`plan_assets` only reads and compares,
:func:`apply_assets` writes the differences. Between the two the caller locks and writes its DAG rows and then locks the
triggers (:func:`lock_affected`): the order of the transaction that stores events. No difference, no write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from app.domain.reconcile import (
    LinkDifference,
    LinkKey,
    Reference,
    WantedLink,
    activation,
    is_bare,
    link_difference,
)
from app.domain.specs import AssetKey, AssetSpec
from app.store import asset_triggers, assets, dags, watcher_links
from app.store.asset_triggers import NewTrigger, StoredTrigger
from app.store.assets import StoredAsset
from app.store.database import Connection
from app.store.watcher_links import NewLink

Encrypt = Callable[[str], bytes]
ASSET_CONFLICT = "asset conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a file declares about assets.

    ``references`` has an entry for each DAG concerned, empty for one that is being retired; ``links`` are all watchers
    of the file; ``bundle_digest`` is the code version that comes into force (empty if none does).
    """

    file_path: str
    bundle_digest: str
    assets: Mapping[AssetKey, AssetSpec]
    references: Mapping[str, frozenset[Reference]]
    links: Mapping[LinkKey, WantedLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetPlan:
    """The differences between a declaration and what is stored."""

    declaration: Declaration
    stored: Mapping[AssetKey, StoredAsset]
    missing: tuple[AssetSpec, ...]
    described: Mapping[int, AssetSpec]
    uses_added: frozenset[Reference]
    uses_ended: Mapping[Reference, int]
    links: LinkDifference
    triggers: Mapping[str, StoredTrigger]
    queues: Mapping[int, str | None]
    acknowledging: Mapping[int, bool]
    affected: frozenset[int]

    @property
    def is_empty(self) -> bool:
        uses = self.uses_added or self.uses_ended
        return not (self.missing or self.described or uses or self.links or self.queues or self.acknowledging)


async def plan_assets(connection: Connection, declaration: Declaration) -> AssetPlan:
    """Compare the declaration with what is stored."""
    known_uses = await assets.read_references(connection, declaration.references.keys())
    wanted_uses = frozenset(use for uses in declaration.references.values() for use in uses)
    keys = {use.asset for use in known_uses} | declaration.assets.keys()
    stored = await _neighbourhood(connection, keys)
    known_links = await watcher_links.read_links(
        connection, [row.asset_id for row in stored.values()], file_path=declaration.file_path
    )
    identities = {link.trigger.identity for link in declaration.links.values()}
    triggers = await asset_triggers.read_by_identity(connection, identities)
    elsewhere = await assets.read_referring_elsewhere(
        connection, [row.asset_id for row in stored.values()], dag_ids=declaration.references.keys()
    )
    return AssetPlan(
        declaration=declaration,
        stored=stored,
        missing=tuple(spec for key, spec in declaration.assets.items() if key not in stored),
        described=_described(declaration, stored, elsewhere),
        uses_added=wanted_uses - known_uses.keys(),
        uses_ended={use: row_id for use, row_id in known_uses.items() if use not in wanted_uses},
        links=link_difference(known_links, declaration.links),
        triggers=triggers,
        queues=_requeued(declaration, triggers),
        acknowledging=_acknowledging(declaration, triggers),
        affected=frozenset(
            {link.trigger_id for link in known_links} | {trigger.trigger_id for trigger in triggers.values()}
        ),
    )


async def lock_affected(connection: Connection, *plans: AssetPlan) -> None:
    """Lock the triggers that applying the plans may change; after the DAG rows are locked."""
    await asset_triggers.lock_triggers(connection, {trigger for plan in plans for trigger in plan.affected})


async def apply_assets(connection: Connection, plan: AssetPlan, *, encrypt: Encrypt) -> bool:
    """Write the differences; whether any trigger or link changed. The DAG rows are up to date already."""
    ids = {key: row.asset_id for key, row in plan.stored.items()}
    if plan.missing:
        ids |= await assets.insert_assets(connection, plan.missing)
    for asset_id, spec in plan.described.items():
        await assets.describe_asset(connection, asset_id, spec=spec)
    if plan.uses_ended:
        await assets.delete_references(connection, plan.uses_ended.values())
    if plan.uses_added:
        ordered = sorted(plan.uses_added, key=lambda use: (use.dag_id, use.kind, use.task_id or "", ids[use.asset]))
        await assets.insert_references(connection, [(use, ids[use.asset]) for use in ordered])
    await _settle_activity(connection, ids.values())
    made, moved = await _apply_links(connection, plan, ids=ids, encrypt=encrypt)
    changed = await _settle_triggers(connection, plan, plan.affected | made)
    if moved:
        await asset_triggers.release(connection, moved, reason="it serves another asset now")
    return changed or bool(plan.links)


async def refresh_consumed(connection: Connection, asset_ids: Collection[int]) -> None:
    """Recompute which triggers of the assets are wanted, after a consumer was paused or unpaused."""
    triggers = await watcher_links.read_linked_triggers(connection, asset_ids)
    await asset_triggers.lock_triggers(connection, triggers)
    await asset_triggers.refresh_wanted(connection, triggers)


async def _neighbourhood(connection: Connection, keys: Collection[AssetKey]) -> dict[AssetKey, StoredAsset]:
    """The assets, and all others that compete with them for a name or uri, directly or through a third."""
    rows: dict[AssetKey, StoredAsset] = {}
    names = {key.name for key in keys}
    uris = {key.uri for key in keys}
    known = (0, 0)
    while (len(names), len(uris)) != known:
        known = len(names), len(uris)
        rows = {row.key: row for row in await assets.read_neighbourhood(connection, names=names, uris=uris)}
        names |= {key.name for key in rows}
        uris |= {key.uri for key in rows}
    return rows


def _described(
    declaration: Declaration, stored: Mapping[AssetKey, StoredAsset], elsewhere: Collection[int]
) -> dict[int, AssetSpec]:
    """Assets whose group or extra changes. A bare mention changes nothing of an asset that others use as well."""
    changed: dict[int, AssetSpec] = {}
    for key, spec in declaration.assets.items():
        row = stored.get(key)
        if row is None or (row.group, row.extra) == (spec.group, spec.extra):
            continue
        if not (is_bare(spec) and row.asset_id in elsewhere):
            changed[row.asset_id] = spec
    return changed


def _requeued(declaration: Declaration, triggers: Mapping[str, StoredTrigger]) -> dict[int, str | None]:
    queues: dict[int, str | None] = {}
    for link in declaration.links.values():
        known = triggers.get(link.trigger.identity)
        if known is not None and known.queue != link.trigger.queue:
            queues[known.trigger_id] = link.trigger.queue
    return queues


def _acknowledging(declaration: Declaration, triggers: Mapping[str, StoredTrigger]) -> dict[int, bool]:
    """Triggers whose class says now that its source forgets, or no longer, with what it says."""
    changed: dict[int, bool] = {}
    for link in declaration.links.values():
        known = triggers.get(link.trigger.identity)
        if known is not None and known.acknowledges != link.trigger.acknowledges:
            changed[known.trigger_id] = link.trigger.acknowledges
    return changed


async def _settle_activity(connection: Connection, asset_ids: Collection[int]) -> None:
    """Activate and deactivate assets, and let the warnings of all DAGs concerned say what is so."""
    change = activation(await assets.read_uses(connection, asset_ids))
    if change.deactivate:
        await assets.set_active(connection, change.deactivate, active=False)
    if change.activate:
        await assets.set_active(connection, change.activate, active=True)
    users = await assets.read_users(connection, asset_ids)
    lines: dict[str, list[str]] = {}
    for conflict in await assets.read_conflicts(connection, users):
        own, other = (f"{asset.name!r} ({asset.uri})" for asset in (conflict.own, conflict.other))
        kept, idle = (own, other) if conflict.own_is_active else (other, own)
        lines.setdefault(conflict.dag_id, []).append(
            f"assets {kept} and {idle} claim the same name or uri; the first was there before and keeps it, the second "
            "stays inactive"
        )
    messages = {dag_id: "; ".join(sorted(set(found))) for dag_id, found in lines.items()}
    await dags.set_warnings(connection, messages, warning_type=ASSET_CONFLICT)
    await dags.delete_warnings(
        connection, [dag_id for dag_id in users if dag_id not in messages], warning_type=ASSET_CONFLICT
    )


async def _apply_links(
    connection: Connection, plan: AssetPlan, *, ids: Mapping[AssetKey, int], encrypt: Encrypt
) -> tuple[set[int], set[int]]:
    """Bring the links to what is declared; the triggers made for it, and those that lost one link and got another.

    The latter must start anew: a message in their hands was matched against the link that is gone, so taking it as
    nobody's would lose it. Their owner is fenced, does not acknowledge it, and it comes again.
    """
    difference, file_path = plan.links, plan.declaration.file_path
    trigger_ids = {identity: trigger.trigger_id for identity, trigger in plan.triggers.items()}
    unknown = {
        link.trigger.identity: link
        for link, _ in reversed(difference.created)
        if link.trigger.identity not in trigger_ids
    }
    # Once a trigger, not once a link: encrypting takes its time.
    fresh = {identity: _new_trigger(link, encrypt) for identity, link in reversed(unknown.items())}
    if fresh:
        trigger_ids |= await asset_triggers.insert_triggers(connection, list(fresh.values()))
    if difference.updated:
        await watcher_links.update_links(connection, difference.updated)
    declared = dict(difference.declared)
    lost: set[int] = set()
    inherits = dict.fromkeys(
        (replaced, trigger_ids[link.trigger.identity])
        for link, replaced in difference.created
        if replaced is not None and link.trigger.identity in fresh
    )
    for before, after in inherits:
        await asset_triggers.copy_positions(connection, from_trigger=before, to_trigger=after)
    declared |= await _insert_links(connection, difference, ids=ids, trigger_ids=trigger_ids)
    if declared:
        await watcher_links.declare_links(connection, declared, file_path=file_path)
    if difference.ended:
        await watcher_links.end_declarations(connection, difference.ended, file_path=file_path)
        lost.update(await watcher_links.delete_undeclared(connection, difference.ended))
    await _hand_on_letters(connection, difference, ids=ids, trigger_ids=trigger_ids)
    made = {trigger_ids[identity] for identity in fresh}
    gained = {trigger_ids[link.trigger.identity] for link, _ in difference.created}
    return made, (gained & lost) - made


async def _insert_links(
    connection: Connection,
    difference: LinkDifference,
    *,
    ids: Mapping[AssetKey, int],
    trigger_ids: Mapping[str, int],
) -> dict[int, str]:
    """The new links by id, with the digest of the code that declares them."""
    if not difference.created:
        return {}
    new = [
        NewLink(
            asset_id=ids[link.asset],
            trigger_id=trigger_ids[link.trigger.identity],
            name=link.name,
            when=link.when,
            schema=link.schema,
        )
        for link, _ in difference.created
    ]
    watcher_ids = await watcher_links.insert_links(connection, new)
    return {
        watcher_id: link.bundle_digest for watcher_id, (link, _) in zip(watcher_ids, difference.created, strict=True)
    }


async def _hand_on_letters(
    connection: Connection,
    difference: LinkDifference,
    *,
    ids: Mapping[AssetKey, int],
    trigger_ids: Mapping[str, int],
) -> None:
    """Dead letters of a trigger that was replaced go to the one in its place; once a trigger, not once a link."""
    heirs: dict[tuple[int, int], list[int]] = {}
    for link, replaced in difference.created:
        if replaced is not None:
            heirs.setdefault((replaced, trigger_ids[link.trigger.identity]), []).append(ids[link.asset])
    for (before, after), asset_ids in heirs.items():
        await asset_triggers.inherit_letters(connection, from_trigger=before, to_trigger=after, asset_ids=asset_ids)


def _new_trigger(link: WantedLink, encrypt: Encrypt) -> NewTrigger:
    spec = link.trigger
    return NewTrigger(
        identity=spec.identity,
        classpath=spec.classpath,
        kwargs=encrypt(spec.kwargs),
        queue=spec.queue,
        team_name=spec.team,
        bundle_digest=link.bundle_digest if spec.in_bundle else None,
        acknowledges=spec.acknowledges,
    )


async def _settle_triggers(connection: Connection, plan: AssetPlan, trigger_ids: Collection[int]) -> bool:
    """Delete, restart and want triggers as their links now say; whether any changed."""
    deleted = await asset_triggers.delete_unlinked(connection, trigger_ids)
    wanted = await asset_triggers.refresh_wanted(connection, trigger_ids)
    recoded = await asset_triggers.replace_code(connection, trigger_ids, preferred=plan.declaration.bundle_digest)
    if recoded:
        await asset_triggers.release(connection, recoded, reason="its code changed")
    for trigger_id, acknowledges in plan.acknowledging.items():
        await asset_triggers.set_acknowledges(connection, trigger_id, acknowledges=acknowledges)
    for trigger_id, queue in plan.queues.items():
        await asset_triggers.set_queue(connection, trigger_id, queue=queue)
    if plan.queues:
        await asset_triggers.release(connection, plan.queues, reason="its queue changed")
    return bool(deleted or wanted or recoded or plan.queues)
