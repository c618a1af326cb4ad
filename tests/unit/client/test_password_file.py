"""Passwords in files (ledgerlog_spark.client.password_file), and their maximum length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.cli.options import password_from
from ledgerlog_spark.client.handles.creation import checked_new_password
from ledgerlog_spark.datasource.cluster import password_in
from ledgerlog_spark.errors import ConfigurationError
from tests.fixtures.client_world import ClientWorld

if TYPE_CHECKING:
    from pathlib import Path

NONE = "contains no password: write the password into it, or pass no file"
TOO_LARGE = "is too large: a password has at most 1,024 bytes"


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"secret", b"secret"),
        (b"secret\n", b"secret"),
        (b"secret\r\n", b"secret"),
        (b"secret\n\n", b"secret"),
        (b" two words ", b" two words "),
        (b"\xff\x00", b"\xff\x00"),
        (b"x" * 1_024 + b"\r\n", b"x" * 1_024),
    ],
)
def test_options_and_commands_find_the_same_password_in_a_file(
    tmp_path: Path, content: bytes, password: bytes
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    assert password_in(str(file)) == password_from(file) == password


def test_without_a_file_there_is_no_password() -> None:
    assert password_in(None) == password_from(None) == b""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", NONE),
        (b"\n", NONE),
        (b"\r\n\r\n", NONE),
        (b"x" * 1_025, TOO_LARGE),
        (b"x" * 10_000_000, TOO_LARGE),
        (b"secret" + b"\n" * 2_048 + b"more", TOO_LARGE),
    ],
)
def test_a_file_without_a_password_or_with_a_long_one_is_refused(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said) as refused:
        password_in(str(file))
    assert str(refused.value).startswith(f'option "passwordFile" names {str(file)!r}')
    assert refused.value.option == "passwordFile"
    with pytest.raises(ConfigurationError, match=said) as refused:
        password_from(file)
    assert str(refused.value).startswith(f"the password file {file} ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="which cannot be read: No such file"):
        password_in(str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        password_from(tmp_path)


async def test_a_ledger_is_made_with_a_password_of_1024_bytes_at_most(world: ClientWorld) -> None:
    assert checked_new_password(b"x" * 1_024) == b"x" * 1_024
    client = world.client()
    with pytest.raises(ConfigurationError, match="has 1,025 bytes, but the maximum is 1,024"):
        await client.create_ledger(password=b"x" * 1_025)
    ledger = await client.create_ledger(password=b"x" * 1_024)
    await ledger.append(b"one")
    await ledger.close()
    reader = await client.open_ledger(ledger.id, password=b"x" * 1_024)
    assert [bytes(e.payload) async for e in reader.read(0, 0)] == [b"one"]
