"""Phrases that need a second reading do not return to the areas that are free of them.

`house/tics.py` has the phrases and what to write instead. An area is clean for every phrase that is
not listed for it in `STILL_IN`. Messages are clean everywhere. To clean an area, rewrite its texts
(`python -m tests.architecture.house --list NAME` shows the places of a phrase) and delete the
phrase from its list.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from tests.architecture.house.areas import prose_of
from tests.architecture.house.tics import TICS, Hit, hits
from tests.architecture.trees import ROOT, assert_none

STILL_IN: Final[dict[str, str]] = {}
"""The phrases that are still in the docstrings and comments of a folder, or in a page."""


@cache
def found() -> tuple[Hit, ...]:
    return tuple(hits(ROOT, prose_of(ROOT)))


def area_of(path: str) -> str:
    """The page or module, or the folder below a package."""
    parts = path.split("/")
    is_page = path.endswith(".md")
    return path if is_page or len(parts) < 3 else "/".join(parts[:2])


@pytest.mark.parametrize("tic", TICS)
def test_clean_areas_stay_clean(tic: str) -> None:
    offenders = [
        hit
        for hit in found()
        if hit.tic == tic
        and hit.kind != "string"
        and tic not in STILL_IN.get(area_of(hit.path), "").split()
    ]
    assert_none(offenders, TICS[tic].instead)


@pytest.mark.parametrize("tic", TICS)
def test_messages_are_clean_everywhere(tic: str) -> None:
    offenders = [hit for hit in found() if hit.tic == tic and hit.kind == "string"]
    assert_none(offenders, TICS[tic].instead)


def test_the_list_names_areas_and_phrases_that_exist() -> None:
    areas = {area_of(path) for path in prose_of(ROOT)}
    assert_none(STILL_IN.keys() - areas, "delete them from STILL_IN")
    unknown = [
        f"{area}: {tic}"
        for area, tics in STILL_IN.items()
        for tic in tics.split()
        if tic not in TICS
    ]
    assert_none(unknown, "no such phrase")


def test_no_area_is_listed_that_is_clean() -> None:
    dirty = {area_of(hit.path) for hit in found() if hit.kind != "string"}
    assert_none(STILL_IN.keys() - dirty, "clean now: delete them from STILL_IN")
