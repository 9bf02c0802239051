"""The arithmetic of the benchmarks: a wrong percentile would be believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.__main__ import NAMES, options
from tests.benchmarks.consumption import per_message
from tests.benchmarks.figures import Rate, Section, Spread, percentile
from tests.benchmarks.machine import Machine
from tests.benchmarks.report import write_json


def test_percentiles_of_a_hundred() -> None:
    spread = Spread.of("hop", [float(value) for value in range(100, 0, -1)])
    assert (spread.p50, spread.p95, spread.p99, spread.largest, spread.count) == (50, 95, 99, 100, 100)


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.floats(0.1, 100))
def test_a_percentile_is_the_smallest_sample_that_enough_do_not_exceed(ordered: list[float], percent: float) -> None:
    found = percentile(ordered, percent)
    needed = len(ordered) * percent / 100
    assert sum(sample <= found for sample in ordered) >= needed
    smaller = [sample for sample in ordered if sample < found]
    assert not smaller or sum(sample <= smaller[-1] for sample in ordered) < needed


def test_no_samples_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_processor_time_is_told_by_part_largest_first() -> None:
    before, after = {"scheduler": 1.0}, {"scheduler": 1.5, "tasks": 1.0, "loader": 0.0}
    assert per_message(before, after, messages=100) == "processor time a message: 15.0 ms (tasks 10.0, scheduler 5.0)"


def test_results_can_be_read_by_programs(tmp_path: Path) -> None:
    machine = Machine(processor="p", cores=2, memory_gib=4, python="3.11", load=0.5)
    rate = Rate(name="commits", per_second=10.0, spread=Spread.of("commit", [1.0, 2.0]))
    write_json(tmp_path / "results.json", machine, [Section(title="raw", rows=(rate,), notes=("fsync on",))])
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["machine"]["cores"] == 2
    assert document["sections"][0]["rows"][0]["spread"]["p50"] == 1.0


def test_options_choose_and_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert options([]).only == list(NAMES)
    assert options(["--only", "rest, kafka"]).only == ["rest", "kafka"]
    for wrong in (["--only", "rabbits"], ["--events", "0"]):
        with pytest.raises(SystemExit):
            options(wrong)
    assert "rabbits" in capsys.readouterr().err
