"""Asset events as a task sees them: those that caused its run, those of its inlets, and those it will make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from app.domain.json_values import json_object, json_value
from app.domain.orders import EventValue, OutletEvent
from app.sdk.assets import Asset

if TYPE_CHECKING:
    from app.sdk.gateway import TaskGateway


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetEvent:
    """Something happened to ``asset``. ``extra`` is what its maker said about it."""

    id: int
    asset: Asset
    extra: dict[str, Any]
    timestamp: datetime
    source_dag_id: str | None = None
    source_task_id: str | None = None
    source_run_id: str | None = None
    source_map_index: int = -1

    @classmethod
    def of_value(cls, value: EventValue) -> AssetEvent:
        """The event of an order or of the executor's answer."""
        return cls(
            id=value.id,
            asset=Asset.of_key(value.asset),
            extra=value.extra,
            timestamp=datetime.fromisoformat(value.timestamp),
            source_dag_id=value.source_dag_id,
            source_task_id=value.source_task_id,
            source_run_id=value.source_run_id,
            source_map_index=value.source_map_index,
        )

    @property
    def payload(self) -> Any:
        """The message of a watcher's trigger; ``None`` if the event has another source."""
        return self.extra.get("payload") if self.extra.get("from_trigger") else None

    @property
    def uri(self) -> str:
        """The asset's uri."""
        return self.asset.uri


class TriggeringAssetEvents(Mapping[Asset, list[AssetEvent]]):
    """The events that caused the run, by asset, each list in the order of arrival.

    An asset without events has an empty list. Keys are assets: a text raises :class:`TypeError`.
    """

    def __init__(self, events: Sequence[AssetEvent]) -> None:
        self.all = tuple(events)
        self._by_asset: dict[Asset, list[AssetEvent]] = {}
        for event in events:
            self._by_asset.setdefault(event.asset, []).append(event)

    def __getitem__(self, key: Asset) -> list[AssetEvent]:
        if not isinstance(key, Asset):
            raise TypeError(
                f"triggering_asset_events[{key!r}]: the key is an Asset, not {type(key).__name__}; "
                "write Asset(name) or take .values()"
            )
        return self._by_asset.get(key, [])

    def __contains__(self, key: object) -> bool:
        return key in self._by_asset

    def __iter__(self) -> Iterator[Asset]:
        return iter(self._by_asset)

    def __len__(self) -> int:
        return len(self._by_asset)

    def __repr__(self) -> str:
        return f"TriggeringAssetEvents({self._by_asset!r})"


class InletEvents(Sequence[AssetEvent]):
    """All events of one inlet, fetched when first looked at. ``after before ascending limit`` narrow the question."""

    def __init__(self, asset: Asset, gateway: TaskGateway, **question: Any) -> None:
        self._asset = asset
        self._gateway = gateway
        self._question = question
        self._events: list[AssetEvent] | None = None

    def after(self, moment: datetime | str) -> InletEvents:
        """Only events at or after ``moment``, which has a time zone."""
        return self._narrowed(after=_moment(moment))

    def before(self, moment: datetime | str) -> InletEvents:
        """Only events before ``moment``, which has a time zone."""
        return self._narrowed(before=_moment(moment))

    def ascending(self, ascending: bool = True) -> InletEvents:
        """Oldest first (the default) or newest first."""
        return self._narrowed(ascending=ascending)

    def limit(self, limit: int) -> InletEvents:
        """At most so many."""
        return self._narrowed(limit=limit)

    def __getitem__(self, index: Any) -> Any:
        return self._fetched()[index]

    def __len__(self) -> int:
        return len(self._fetched())

    def _narrowed(self, **question: Any) -> InletEvents:
        return InletEvents(self._asset, self._gateway, **{**self._question, **question})

    def _fetched(self) -> list[AssetEvent]:
        if self._events is None:
            values = self._gateway.inlet_events(self._asset.key, **self._question)
            self._events = [AssetEvent.of_value(value) for value in values]
        return self._events


class InletEventsByAsset(Mapping[Asset, InletEvents]):
    """The events of each of the task's inlets; a key is the asset or its place in the list of inlets."""

    def __init__(self, inlets: Sequence[Asset], gateway: TaskGateway) -> None:
        self._inlets = list(inlets)
        self._gateway = gateway

    def __getitem__(self, key: Any) -> InletEvents:
        return InletEvents(_one_of(self._inlets, key, what="inlet"), self._gateway)

    def __iter__(self) -> Iterator[Asset]:
        return iter(self._inlets)

    def __len__(self) -> int:
        return len(self._inlets)


class StrictExtra(MutableMapping[str, Any]):
    """The ``extra`` of an event to be: takes JSON values only, and says at once which key is wrong."""

    def __init__(self, name: str) -> None:
        self._path = f"outlet_events[Asset({name!r})].extra"
        self._values: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        json_object({key: None}, self._path)
        json_value(value, f"{self._path}[{key!r}]")
        self._values[key] = value

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def checked(self) -> dict[str, Any]:
        """A copy made of JSON's own types; parts may have been changed since they were assigned."""
        return json_object(self._values, self._path)


class OutletAccumulator:
    """What the task says about the event it will make of ``asset``."""

    def __init__(self, asset: Asset) -> None:
        self.asset = asset
        self._extra = StrictExtra(asset.name)

    @property
    def extra(self) -> MutableMapping[str, Any]:
        """The event's ``extra``; assigning a mapping replaces it, the last write of a key wins."""
        return self._extra

    @extra.setter
    def extra(self, value: Mapping[str, Any]) -> None:
        fresh = StrictExtra(self.asset.name)
        json_object(value, f"outlet_events[Asset({self.asset.name!r})].extra")
        fresh.update(value)
        self._extra = fresh

    def event(self) -> OutletEvent:
        """The event as a plain value."""
        return OutletEvent(asset=self.asset.key, extra=self._extra.checked())


class OutletEvents(Mapping[Asset, OutletAccumulator]):
    """One accumulator for each of the task's outlets; a key is the asset or its place in the list of outlets."""

    def __init__(self, outlets: Sequence[Asset]) -> None:
        self._outlets = list(outlets)
        self._accumulators = {asset: OutletAccumulator(asset) for asset in outlets}

    def __getitem__(self, key: Any) -> OutletAccumulator:
        return self._accumulators[_one_of(self._outlets, key, what="outlet")]

    def __iter__(self) -> Iterator[Asset]:
        return iter(self._outlets)

    def __len__(self) -> int:
        return len(self._outlets)

    def events(self) -> tuple[OutletEvent, ...]:
        """One event for each outlet."""
        return tuple(accumulator.event() for accumulator in self._accumulators.values())


def _one_of(assets: Sequence[Asset], key: Any, *, what: str) -> Asset:
    if isinstance(key, int) and not isinstance(key, bool):
        return assets[key]
    if not isinstance(key, Asset):
        raise TypeError(f"{what}_events[{key!r}]: the key is an Asset or a number, not {type(key).__name__}")
    if key not in assets:
        known = ", ".join(repr(asset.name) for asset in assets) or "none"
        raise KeyError(f"asset {key.name!r} is no {what} of this task; it has {known}")
    return next(asset for asset in assets if asset == key)


def _moment(value: datetime | str) -> str:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return moment.isoformat()
