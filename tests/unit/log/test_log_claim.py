"""The claim in the head of a leader log: stored form, and who may change it."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.claim import LEADER_CLAIM, claim_of, with_claim
from ledgerlog_spark.protocol.log.machine import READER_FEATURES, WRITER_FEATURES
from ledgerlog_spark.protocol.log.properties import (
    LogProperties,
    changed_properties,
    user_properties,
)
from ledgerlog_spark.protocol.log.state.codec import decode_head, encode_head
from ledgerlog_spark.protocol.log.state.records import LogHead
from tests.sim.leader.world import leader_head
from tests.unit.log.log_values import token

CLAIM = token(0xC1A1)
GOLDEN = (
    "4c4c4f4701010100000000c70d87e30b789c5330c00f0c9973f2d31919191818185fb033a0029028"
    "13774e6a624a6a91734e6266ae023e93920d130dd98af273727c8b590c817c064664ad7003f100e6"
    "17ff81005d11980f005a2e1fcd"
)


def head() -> LogHead:
    return with_claim(leader_head({"rollMs": "1000"}), CLAIM)


def body_of(data: bytes) -> bytes:
    """The body of a stored record, whose compressed form depends on the version of zlib."""
    is_compressed, body = data[6], data[16:]
    return zlib.decompress(body) if is_compressed else body


def test_a_claimed_head_has_these_bytes() -> None:
    golden = bytes.fromhex(GOLDEN)
    assert decode_head(golden) == head()
    assert body_of(encode_head(head())) == body_of(golden)


def test_a_claim_replaces_the_claim_before_and_changes_nothing_else() -> None:
    before = leader_head({"rollMs": "1000"})
    assert claim_of(before) == ""
    first = with_claim(before, token(7))
    second = with_claim(first, CLAIM)
    assert (claim_of(first), claim_of(second)) == (token(7), CLAIM)
    assert second == replace(
        before,
        properties={"rollMs": "1000", LEADER_CLAIM: CLAIM},
        writer_features=(LEADER_CLAIM,),
    )


def test_the_feature_is_one_of_writers_only() -> None:
    assert LEADER_CLAIM in WRITER_FEATURES
    assert LEADER_CLAIM not in READER_FEATURES


@pytest.mark.parametrize("name", [LEADER_CLAIM, LEADER_CLAIM.upper()])
@pytest.mark.parametrize("value", [CLAIM, None])
def test_users_cannot_change_it(name: str, value: str | None) -> None:
    with pytest.raises(ConfigurationError, match="lead=True"):
        changed_properties(head().properties, {name: value})


def test_users_do_not_see_it_and_their_changes_keep_it() -> None:
    stored = head().properties
    assert user_properties(stored) == {"rollMs": "1000"}
    assert LogProperties.from_mapping(stored).roll_ms == 1_000
    assert changed_properties(stored, {"rollMs": None}) == {LEADER_CLAIM: CLAIM}
