"""The file with the metadata of one ledger, and the conditions of its import. Pure: no I/O.

The file is a JSON object. `record_base64` is the record. An import takes the metadata only from
this field. `metadata` shows people what the record contains.

An import never returns a ledger to an earlier state and never moves the end of a closed ledger,
because readers have relied on the end.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.errors import ConfigurationError, LedgerError, MetadataFormatError
from ledgerlog_spark.model import LedgerMetadata, Version
from ledgerlog_spark.wire.ledger_metadata.record import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)

FORMAT = 1
SIZE_BYTES_MAX = 4 << 20
"""Maximum size of a file. A node of ZooKeeper has at most 1 MB, and base64 makes its content a
third larger."""


@dataclass(frozen=True, slots=True)
class ExportedRecord:
    """The metadata of a ledger, with the cluster from which it was exported.

    Attributes:
        ledger_id: Id of the ledger.
        instance_id: Id of the cluster.
        version: Number of times that the record was written before the export. An import does not
            use this number.
        metadata: The metadata of the ledger.
    """

    ledger_id: int
    instance_id: str
    version: int
    metadata: LedgerMetadata

    def encode(self, described: Mapping[str, Any]) -> bytes:
        """Return the content of the file. `described` is the metadata in readable form."""
        record = encode_ledger_metadata(self.metadata)
        fields = {
            "format": FORMAT,
            "ledger_id": self.ledger_id,
            "instance_id": self.instance_id,
            "version": self.version,
            "metadata": dict(described),
            "record_base64": base64.b64encode(record).decode(),
        }
        return json.dumps(fields, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, name: str) -> ExportedRecord:
        """Decode the content of the file `name`.

        Raises:
            ConfigurationError: The content is not an exported record.
        """
        if len(data) > SIZE_BYTES_MAX:
            raise _unusable(name, f"it has more than {SIZE_BYTES_MAX:,} bytes")
        try:
            fields = json.loads(data)
            if fields["format"] != FORMAT:
                raise _unusable(name, f"its format is {fields['format']!r}, not {FORMAT}")
            record = base64.b64decode(fields["record_base64"], validate=True)
            return cls(
                ledger_id=_number(fields["ledger_id"]),
                instance_id=str(fields["instance_id"]),
                version=_number(fields["version"]),
                metadata=decode_ledger_metadata(record),
            )
        except MetadataFormatError as error:
            raise _unusable(name, error.message) from error
        except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
            raise _unusable(name, f"{type(error).__name__}: {error}") from error


def check_import(
    exported: ExportedRecord,
    instance_id: str,
    found: LedgerMetadata | None,
    found_version: Version | None,
    replaced_version: int | None,
) -> None:
    """Raise an error if the record must not be written.

    Args:
        exported: The record to write.
        instance_id: Id of the cluster into which the record is written.
        found: The metadata of the ledger in the cluster. It is None if there is no record, or if
            the record cannot be decoded.
        found_version: The version of the record in the cluster, or None if there is no record.
        replaced_version: Number of the version that the import may replace, as the operator gave
            it, or None if the operator gave no version.

    Raises:
        ConfigurationError: The record is of another cluster, or `replaced_version` is missing or
            wrong.
        LedgerError: The record would open the ledger again, or move its end.
    """
    ledger_id = exported.ledger_id
    if exported.instance_id != instance_id:
        raise ConfigurationError(
            f"the record is of the cluster {exported.instance_id}, and this cluster is "
            f"{instance_id}; nothing was changed. Ledgers of another cluster have other entries "
            "with the same ids",
            instance_id=exported.instance_id,
        )
    if found_version is None:
        if replaced_version is not None:
            raise ConfigurationError(
                f"ledger {ledger_id} does not exist, so there is no version {replaced_version} to "
                "replace; nothing was changed. Run the command without --replace-version",
                ledger_id=ledger_id,
            )
        return
    if replaced_version != found_version.number:
        given = "" if replaced_version is None else f", not {replaced_version}"
        raise ConfigurationError(
            f"ledger {ledger_id} exists, and its record has the version {found_version.number}"
            f"{given}; nothing was changed. Compare the record with the file, and pass "
            f"--replace-version {found_version.number} to replace it",
            ledger_id=ledger_id,
            version=found_version.number,
        )
    if found is not None:
        _check_end(ledger_id, exported.metadata, found)


def _check_end(ledger_id: int, new: LedgerMetadata, found: LedgerMetadata) -> None:
    if new.state < found.state:
        raise LedgerError(
            f"ledger {ledger_id} is {found.state.name}, and the file has the state "
            f"{new.state.name}; nothing was changed. A ledger never returns to an earlier state",
            ledger_id=ledger_id,
        )
    ends = [(each.last_entry_id, each.length) for each in (found, new)]
    if found.is_closed and ends[0] != ends[1]:
        raise LedgerError(
            f"ledger {ledger_id} is closed at entry {found.last_entry_id} with {found.length} "
            f"bytes, and in the file at entry {new.last_entry_id} with {new.length} bytes; nothing "
            "was changed. The end of a closed ledger never changes",
            ledger_id=ledger_id,
        )


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not an id or a version")
    return value


def _unusable(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is not an exported record of a ledger: {why}; nothing was changed. `ledgerlog "
        "ledgers export` writes such a file",
        path=name,
    )
