"""Logs of triggers: bounded in what they take from a trigger that says too much."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import msgspec

from app.kernel.frames import FrameStream
from app.processes.triggerer.messages import LogLine, SourceState
from app.processes.triggerer.runner_child_logs import LINES_A_SECOND, Outbox
from app.processes.triggerer.trigger_logs import TriggerLogs


class Sent:
    """Stands for the stream to the triggerer."""

    def __init__(self) -> None:
        self.frames: list[msgspec.Struct] = []

    async def send(self, frame: msgspec.Struct) -> None:
        self.frames.append(frame)


def line(trigger_id: int, text: str) -> LogLine:
    return LogLine(trigger_id=trigger_id, level="info", logger="x", event=text, timestamp=0.0)


async def test_a_flood_of_lines_is_cut_and_takes_nothing_from_others() -> None:
    sent = Sent()
    outbox = Outbox(cast(FrameStream, sent), asyncio.get_running_loop())
    outbox._second = 1e12  # one second that does not end
    for number in range(LINES_A_SECOND + 100):
        outbox.put(line(1, str(number)))
    outbox.put(line(2, "heard"))
    status = SourceState(trigger_id=1, epoch=1, failures=1, error="away")
    outbox.put(status)
    await outbox.flush()
    await outbox.flush()

    lines = [frame for frame in sent.frames if isinstance(frame, LogLine)]
    assert [each.event for each in lines if each.trigger_id == 1] == [str(n) for n in range(LINES_A_SECOND)]
    assert [each.event for each in lines if each.trigger_id == 2] == ["heard"]
    assert [each.event.partition(" ")[0] for each in lines if each.trigger_id == 0] == ["100"]
    assert status in sent.frames


def test_raw_output_is_a_line_each(tmp_path: Path) -> None:
    logs = TriggerLogs(tmp_path)
    logs.write_output(7, "one\n\n\udcff two\r\nthree")
    written = (tmp_path / "logs" / "triggers" / "7.log").read_text().splitlines()
    assert [json.loads(each)["event"] for each in written] == ["one", "\udcff two", "three"]
