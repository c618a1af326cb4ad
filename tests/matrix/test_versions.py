"""Every version that the metadata allows is in a pair."""

from __future__ import annotations

from importlib import metadata

import pytest

from tests.matrix.__main__ import _without
from tests.matrix.versions import _within, allowed_pysparks, allowed_pythons, pairs


def test_every_allowed_version_is_in_a_pair() -> None:
    assert {pair.python for pair in pairs()} == set(allowed_pythons()) == {"3.11", "3.12", "3.13"}
    assert {pair.pyspark for pair in pairs()} == set(allowed_pysparks())
    assert metadata.version("pyspark") in allowed_pysparks()
    assert len(pairs()) == len(set(pairs()))


def test_bounds_are_half_open_and_of_one_form() -> None:
    assert _within(("4.1.4", "4.2.0", "4.3.0", "4.4.0"), ">=4.2,<4.4") == ["4.2.0", "4.3.0"]
    with pytest.raises(AssertionError, match="form"):
        _within(("4.1.4",), ">=4.2")


def test_requirement_is_left_out_with_its_hashes() -> None:
    left_out = "pyspark==4 \\\n    --hash=y \\\n    --hash=z\n"
    lock = f"a==1 \\\n    --hash=x\n{left_out}b==2 \\\n    --hash=u\n"
    assert _without(lock, {"pyspark"}) == "a==1 \\\n    --hash=x\nb==2 \\\n    --hash=u\n"
