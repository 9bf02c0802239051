"""A trigger in the hands of this triggerer, and when it starts again after a failure."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.domain.deliveries import Delivery, DeliveryItem, Position
from app.domain.fan_out import Watchers
from app.kernel.backoff import Backoff
from app.kernel.settings import Settings
from app.processes.triggerer.messages import Start, Yielded
from app.processes.triggerer.runner import RunnerKey, RunnerKind, RunnerProcess
from app.services.triggers import ClaimedTrigger, WatcherFilter
from watchers.encoding_rules import decode_tagged
from watchers.masking import forms_of, texts_in

#: The same place of a trigger that blocks is told again after this time, in seconds.
_BLOCKED_AGAIN = 10.0


class Phase(StrEnum):
    """What a held trigger is doing."""

    PAUSED = "paused"  #: Waits for its timer.
    DUE = "due"  #: About to be started.
    RUNNING = "running"  #: Sent to a runner.
    LEAVING = "leaving"  #: Told to stop, because it is not wanted or not ours any more.


@dataclass(slots=True, kw_only=True)
class Held:
    """One trigger. ``failures`` counts since it was last healthy for long, ``strikes`` deaths while it executed."""

    claimed: ClaimedTrigger
    watchers: tuple[WatcherFilter, ...]
    positions: dict[str, dict[str, str]]
    phase: Phase = Phase.DUE
    runner: RunnerProcess | None = None
    failures: int = 0
    strikes: int = 0
    is_alone: bool = False
    is_ours: bool = True
    started_at: float = 0.0
    #: Unix time of our claim.
    claimed_at: float = field(default_factory=time.time)
    #: Where it was when it last blocked its runner.
    blocked_at: str = ""
    #: When that was last told at the API.
    blocked_told: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    #: Parts of a yield that is not complete yet.
    parts: list[DeliveryItem] = field(default_factory=list)
    places: list[Position] = field(default_factory=list)
    #: Why it waits at its yield, by kind of limit.
    waits: dict[str, str] = field(default_factory=dict)
    _secret_forms: frozenset[str] | None = None

    @classmethod
    def of(cls, claimed: ClaimedTrigger) -> Held:
        """One that was just claimed; what former owners learned of it counts."""
        return cls(
            claimed=claimed,
            watchers=claimed.watchers,
            positions=claimed.positions,
            is_alone=claimed.runs_alone,
            strikes=claimed.strikes,
        )

    @property
    def id(self) -> int:
        """The trigger's id."""
        return self.claimed.id

    @property
    def epoch(self) -> int:
        """The epoch of our claim."""
        return self.claimed.epoch

    @property
    def secret_forms(self) -> frozenset[str]:
        """Every spelling of a text among its kwargs. Which kwargs its class calls public is not known here."""
        if self._secret_forms is None:
            plain = json.loads(self.claimed.kwargs or "{}", object_hook=_with_bytes)
            self._secret_forms = forms_of(texts_in(plain))
        return self._secret_forms

    def runner_key(self) -> RunnerKey:
        """In which runner it belongs."""
        bundle = self.claimed.bundle_digest
        if self.is_alone:
            return RunnerKey(kind=RunnerKind.ALONE, bundle=bundle, trigger_id=self.id)
        return RunnerKey(kind=RunnerKind.INSTALLED if bundle is None else RunnerKind.BUNDLE, bundle=bundle)

    def start_frame(self) -> Start:
        """What its runner is told."""
        assert self.claimed.kwargs is not None
        return Start(
            trigger_id=self.id,
            epoch=self.epoch,
            classpath=self.claimed.classpath,
            kwargs=self.claimed.kwargs,
            identity=self.claimed.identity,
            watchers=watches(self.watchers),
            positions=self.positions,
            entry=self.claimed.bundle_entry,
        )

    def heading(self) -> tuple[float, str]:
        """What its log begins with: when (Unix time) what happened."""
        return self.claimed_at, f"claimed {self.claimed.classpath}, epoch {self.epoch}"

    def is_news(self, place: str, *, now: float) -> bool:
        """Note that it blocks its runner at ``place``; whether that was not told, or not for long."""
        if place == self.blocked_at and now - self.blocked_told < _BLOCKED_AGAIN:
            return False
        self.blocked_at, self.blocked_told = place, now
        return True

    def completed_by(self, frame: Yielded) -> Delivery | None:
        """The delivery whose last part this is; None if more of it is to come."""
        self.parts += frame.items
        self.places += frame.positions
        if not frame.last:
            return None
        delivery = Delivery(trigger_id=self.id, epoch=self.epoch, items=tuple(self.parts), positions=tuple(self.places))
        self.forget_parts()
        return delivery

    def forget_parts(self) -> None:
        """An incomplete yield of a runner that is gone."""
        self.parts.clear()
        self.places.clear()

    def forgive(self) -> None:
        """Its pauses are short again, and it waits for none."""
        self.failures = 0
        self.cancel_timer()

    def cancel_timer(self) -> None:
        """It will not start by itself any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _with_bytes(value: dict[str, Any]) -> Any:
    """Encoded bytes as bytes, since that is how they are printed; other encoded values are read as they are."""
    return decode_tagged(value) if value.get("__type__") == "bytes" else value


def watches(filters: tuple[WatcherFilter, ...]) -> Watchers:
    """Watchers as a runner knows them."""
    return Watchers.of((each.id, each.when, each.schema) for each in filters)


def restart_backoff(settings: Settings) -> Backoff:
    """Pauses between starts of a failing trigger."""
    return Backoff(first=settings.trigger_restart_min, longest=settings.trigger_restart_max)
