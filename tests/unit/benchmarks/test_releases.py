"""Figures of releases, and the output of a comparison of two releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.releases import HISTORY, Measured, Ratio, ratios, read
from benchmarks.report import Figure


def of(
    value: float, *, limit: float | None = None, lower: bool = False, unit: str = "MB/s"
) -> Measured:
    return Measured("append", "64 KiB", value, unit, lower, limit)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (of(100), of(150), (1.5, None)),
        (of(10, lower=True), of(5, lower=True), (2.0, None)),
        (of(100, limit=200), of(100, limit=100), (1.0, 2.0)),
        (of(10, limit=5, lower=True), of(20, limit=10, lower=True), (0.5, 1.0)),
        (of(100, limit=200), of(100), (1.0, None)),
    ],
    ids=["more is better", "less is better", "a slower machine", "both", "without a limit"],
)
def test_ratio_of_more_than_one_is_better(
    old: Measured, new: Measured, expected: tuple[float, float | None]
) -> None:
    assert ratios([old], [new]) == [Ratio("append: 64 KiB", *expected)]


def test_figures_that_one_release_lacks_or_measures_otherwise_are_left_out() -> None:
    assert (
        ratios([of(1)], [of(1, unit="entries/s"), Measured("read", "x", 1, "s", True, None)]) == []
    )


def test_a_file_has_what_scripts_print(tmp_path: Path) -> None:
    printed = Figure("64 KiB", 7.0, "MB/s", (6.0, 8.0), limit=9.0)
    figures = [{"script": "append", **vars(printed), "reached": None, "commit": "c"}]
    (tmp_path / "0.2.0.json").write_text(json.dumps({"figures": figures}))
    assert read("0.2.0", tmp_path) == [of(7.0, limit=9.0)]


def test_a_release_without_a_file_is_named_with_those_that_have_one(tmp_path: Path) -> None:
    (tmp_path / "0.1.0.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"release 9; the releases with figures are: 0\.1\.0"):
        read("9", tmp_path)


def test_files_of_the_history_can_be_read() -> None:
    for path in HISTORY.glob("*.json"):
        assert read(path.stem)
