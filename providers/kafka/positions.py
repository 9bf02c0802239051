"""Where reading resumes, per topic and partition, as it is stored with the events.

The lanes of a topic's source::

    {"0": 1234, "1": 7, "topic": "<id of the topic>"}

A partition's value is the offset of its next message. ``topic`` is written at the first start, also when the topic does
not exist yet (null then): it is what tells a partition that appeared later, which is read from its first message, from
one of a first start, which obeys ``auto_offset_reset``. A topic id that changed tells that the topic was deleted and
made anew: all its offsets mean nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TOPIC_LANE = "topic"


@dataclass(slots=True)
class TopicPositions:
    """The positions of one topic. ``started`` is whether its first start was; ``unsaved`` whether there is more to
    store than what messages move."""

    source: str
    started: bool = False
    unsaved: bool = False
    topic_id: str | None = None
    offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def stored(cls, source: str, lanes: Mapping[str, Any]) -> TopicPositions:
        """From stored lanes; what this version does not understand is taken as not stored."""
        topic_id = lanes.get(TOPIC_LANE)
        offsets = {
            int(lane): value
            for lane, value in lanes.items()
            if lane.isascii() and lane.isdigit() and isinstance(value, int) and value >= 0
        }
        return cls(
            source=source,
            started=bool(lanes),
            topic_id=topic_id if isinstance(topic_id, str) else None,
            offsets=offsets,
        )

    def lanes(self) -> dict[str, Any]:
        """All lanes, for storing."""
        return {TOPIC_LANE: self.topic_id, **{str(partition): self.offsets[partition] for partition in self.offsets}}


@dataclass(slots=True)
class Positions:
    """Positions of all topics of a trigger; they outlive its sessions. ``stored`` is what the runner handed over."""

    stored: Mapping[str, Mapping[str, Any]]
    topics: dict[str, TopicPositions] = field(default_factory=dict)

    def of(self, topic: str, *, source: str) -> TopicPositions:
        """The positions of ``topic`` in this source (another cluster may have taken its place at the address)."""
        known = self.topics.get(topic)
        if known is None or known.source != source:
            known = TopicPositions.stored(source, self.stored.get(source, {}))
            self.topics[topic] = known
        return known
