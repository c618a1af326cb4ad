"""The file IDENTITY, in which a downgrade stores some keys of the MANIFEST (FORMATS.md#identity).

A MANIFEST of the previous version has no fields for the identity, the counters and the doubt of a
directory. Without this file, the next start of this release would not recognise the directory.
"""

from __future__ import annotations

import json
from dataclasses import replace

from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import Manifest
from bookie_server.errors import DamagedDirectoryError
from ledgerlog_spark.wire.digests import crc32c

NAME = "IDENTITY"
MAGIC = "ledgerlog-identity"
KEYS = ("directory_id", "path", "starts", "changes", "previous_id")


def encode_identity(manifest: Manifest) -> bytes:
    """Return the file for a MANIFEST: a first line as in a MANIFEST, and a JSON object."""
    fields = {name: getattr(manifest, name) for name in KEYS}
    # A downgrade is allowed only after the doubt is over, so only the epoch is stored.
    fields["doubt_epoch"] = manifest.doubt.epoch
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
    return f"{MAGIC} 1 {len(body)} {crc32c(body):08x}\n".encode() + body


def decode_identity(data: bytes, manifest: Manifest) -> Manifest:
    """Add the values of this file to a MANIFEST of the previous version, and return the result.

    Raises:
        DamagedDirectoryError: The file is damaged.
    """
    line, _, body = data.partition(b"\n")
    if line != f"{MAGIC} 1 {len(body)} {crc32c(body):08x}".encode():
        raise DamagedDirectoryError(
            f"{NAME} is damaged. It has the id and the counters that `ledgerlog bookie downgrade` "
            "kept. Without them, nothing shows whether the directory is an older copy: restore "
            "the file",
            path=NAME,
            reason="its length or its checksum does not match its first line",
        )
    fields = json.loads(body)
    epoch = fields.get("doubt_epoch", 0)
    kept = {name: fields[name] for name in KEYS}
    return replace(manifest, **kept, doubt=Doubt(epoch, cleared=epoch))
