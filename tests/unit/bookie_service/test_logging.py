"""Logs of a bookie: secrets and payloads stay out of them."""

from __future__ import annotations

from bookie_server.service.logging import black_out_secrets


def test_fields_that_speak_of_secrets_are_hidden() -> None:
    record = black_out_secrets(
        None,
        "info",
        {"event": "fenced", "ledger_id": 7, "master_key": "abc", "Password": "x", "token": 1},
    )
    assert record == {
        "event": "fenced",
        "ledger_id": 7,
        "master_key": "<hidden>",
        "Password": "<hidden>",
        "token": "<hidden>",
    }


def test_raw_bytes_are_told_by_their_size_only() -> None:
    record = black_out_secrets(
        None, "info", {"event": "x", "body": b"canary", "view": memoryview(b"12")}
    )
    assert record == {"event": "x", "body": "<6 bytes>", "view": "<2 bytes>"}
