"""Frames between a process and a child that applies filters and schemas: it is ready, then order by order."""

from __future__ import annotations

import msgspec

from app.domain.deliveries import Refusal
from app.domain.fan_out import Watchers


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Apply the watchers to a payload, which is JSON text."""

    payload: str
    watchers: Watchers


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The child has started; from now on its time counts."""


class Checked(msgspec.Struct, frozen=True, kw_only=True, tag="checked"):
    """The watchers that take the payload, and why others refuse it."""

    passing: tuple[int, ...]
    refusals: tuple[Refusal, ...] = ()


ToChild = Check
ToParent = Ready | Checked
