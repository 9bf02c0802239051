"""Assets as authors write them, the conditions made of them, and the schedules made of conditions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.domain import specs
from app.domain.assets import checked_group, identify
from app.domain.json_values import json_object
from watchers.watcher import AssetWatcher


class Condition:
    """Something a DAG can wait for: an asset, or assets joined with ``&`` and ``|``."""

    __slots__ = ()

    def __and__(self, other: object) -> AssetAll:
        if not isinstance(other, Condition):
            raise TypeError(f"{self!r} & {other!r}: both sides must be assets or conditions of assets")
        return AssetAll(self, other)

    def __or__(self, other: object) -> AssetAny:
        if not isinstance(other, Condition):
            raise TypeError(f"{self!r} | {other!r}: both sides must be assets or conditions of assets")
        return AssetAny(self, other)

    def assets(self) -> tuple[Asset, ...]:
        """The assets named, each once, in the order of their first mention."""
        raise NotImplementedError

    def spec(self) -> specs.Condition:
        """The condition as a plain value."""
        raise NotImplementedError


class Asset(Condition):
    """A thing outside that pipelines make or wait for.

    ``name`` and ``uri`` together are its identity; one of them fills the other. A password in them is dropped with a
    warning. ``extra`` is a JSON object. ``watchers`` turn outside events into events of this asset.

    Two assets are equal if their identity is: what else they carry does not matter. An asset can be used as a path.

    Raises :class:`TypeError` or :class:`ValueError` for a name, uri, group or extra against the rules of
    ``docs/assets.md``.
    """

    __slots__ = ("extra", "group", "name", "uri", "watchers")

    def __init__(
        self,
        name: str | None = None,
        uri: str | None = None,
        *,
        group: str = "asset",
        extra: Mapping[str, Any] | None = None,
        watchers: Sequence[AssetWatcher] = (),
    ) -> None:
        identity = identify(name=name, uri=uri)
        if identity.password_dropped:
            warnings.warn(
                f"asset {identity.name!r}: the password in its uri was dropped; keep it in a connection", stacklevel=2
            )
        self.name = identity.name
        self.uri = identity.uri
        self.group = checked_group(group)
        self.extra: dict[str, Any] = json_object(extra or {}, f"asset {self.name!r}: extra")
        self.watchers = _checked_watchers(self.name, watchers)

    @classmethod
    def of_key(cls, key: specs.AssetKey) -> Asset:
        """The asset of a stored identity, which is not checked again."""
        asset = cls.__new__(cls)
        asset.name = key.name
        asset.uri = key.uri
        asset.group = "asset"
        asset.extra = {}
        asset.watchers = ()
        return asset

    @property
    def key(self) -> specs.AssetKey:
        """The identity."""
        return specs.AssetKey(name=self.name, uri=self.uri)

    def assets(self) -> tuple[Asset, ...]:
        return (self,)

    def spec(self) -> specs.Condition:
        return specs.AssetLeaf(name=self.name, uri=self.uri)

    def __eq__(self, other: object) -> bool:
        return (self.name, self.uri) == (other.name, other.uri) if isinstance(other, Asset) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.uri))

    def __fspath__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"Asset(name={self.name!r}, uri={self.uri!r})"


class _Joined(Condition):
    """Conditions joined by one word. Members joined by the same word are taken in, wherever they stand."""

    __slots__ = ("objects",)

    def __init__(self, *objects: Condition) -> None:
        word = type(self).__name__
        if not objects:
            raise ValueError(f"{word} needs at least one asset: a condition without any could never hold")
        members: dict[Condition, None] = {}
        for member in objects:
            if not isinstance(member, Condition):
                raise TypeError(f"{word}: {member!r} is neither an asset nor a condition of assets")
            members.update(dict.fromkeys(member.objects if type(member) is type(self) else (member,)))
        self.objects: tuple[Condition, ...] = tuple(members)

    def assets(self) -> tuple[Asset, ...]:
        return tuple(dict.fromkeys(asset for member in self.objects for asset in member.assets()))

    def __eq__(self, other: object) -> bool:
        return self.objects == other.objects if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self.objects))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.objects))})"


class AssetAny(_Joined):
    """Holds once one of its members holds."""

    __slots__ = ()

    def spec(self) -> specs.Condition:
        return specs.AnyOf(members=tuple(member.spec() for member in self.objects))


class AssetAll(_Joined):
    """Holds once all of its members hold."""

    __slots__ = ()

    def spec(self) -> specs.Condition:
        return specs.AllOf(members=tuple(member.spec() for member in self.objects))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Collect completed groups of events into one run, closed at the first limit reached.

    ``max_events`` counts events: a batch closes when it holds so many, and before a group that would exceed them (a
    larger group is a batch by itself). ``max_wait`` runs from the completion of the first group. At least one limit is
    needed.
    """

    max_events: int | None = None
    max_wait: timedelta | None = None

    def __post_init__(self) -> None:
        if self.max_events is None and self.max_wait is None:
            raise ValueError("Batch needs max_events, max_wait, or both: without a limit it would never close")
        if self.max_events is not None and (
            not isinstance(self.max_events, int) or isinstance(self.max_events, bool) or self.max_events < 1
        ):
            raise ValueError(f"Batch: max_events must be a whole number of at least 1, not {self.max_events!r}")
        if self.max_wait is not None and (not isinstance(self.max_wait, timedelta) or self.max_wait <= timedelta(0)):
            raise ValueError(f"Batch: max_wait must be a timedelta longer than nothing, not {self.max_wait!r}")


@dataclass(frozen=True, slots=True)
class AssetSchedule:
    """Run when ``condition`` holds: an asset, a condition, or a list (all of them). ``batch`` gathers."""

    condition: Condition | Sequence[Condition]
    batch: Batch | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "condition", as_condition(self.condition))
        if self.batch is not None and not isinstance(self.batch, Batch):
            raise TypeError(f"AssetSchedule: batch must be a Batch, not {self.batch!r}")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Yield it from a task function to add ``extra`` to the event of one of the task's outlets."""

    asset: Asset
    extra: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.asset, Asset):
            raise TypeError(f"Metadata is about an Asset, not {self.asset!r}")
        object.__setattr__(self, "extra", json_object(self.extra, f"Metadata for {self.asset.name!r}: extra"))


def as_condition(value: object) -> Condition:
    """``value`` as a condition; a list of conditions means all of them.

    Raises :class:`ValueError` for an empty list, :class:`TypeError` for anything else.
    """
    if isinstance(value, Condition):
        return value
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        members = list(value)
        if not members:
            raise ValueError("a schedule of assets needs at least one asset: an empty list could never start a run")
        return AssetAll(*members)
    raise TypeError(f"{value!r} is neither an asset nor a condition of assets")


def _checked_watchers(name: str, watchers: Sequence[AssetWatcher]) -> tuple[AssetWatcher, ...]:
    checked = tuple(watchers)
    seen: set[str] = set()
    for watcher in checked:
        if not isinstance(watcher, AssetWatcher):
            raise TypeError(f"asset {name!r}: watchers must be AssetWatcher, not {type(watcher).__name__}")
        if watcher.name in seen:
            raise ValueError(f"asset {name!r}: two watchers are called {watcher.name!r}")
        seen.add(watcher.name)
    return checked
