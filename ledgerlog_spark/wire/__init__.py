"""Byte formats shared with Apache BookKeeper, as pure functions over bytes.

Modules, each one format:

- `checksum`: the four digests of an entry. `castagnoli`: CRC32C of any buffer, chained.
- `master_key`: what a password becomes on the wire.
- `entry_codec`: the stored entry: 32-byte header, digest, payload. `stored_batch`: many of them in
  one piece of memory.
- `opcodes`: operations, flags and the packet header.
- `error_codes`: outcome codes to numbers and back.
- `requests`, `answers`: the bodies of v2 frames in either direction.
- `version_3`: how requests of version 3 are recognised and refused.
- `frames`: cuts a byte stream into frames.
- `ledger_metadata`: the ledger's record in format 3, and whichever is found: format 2 is in
  `ledger_metadata_text`, format 1 in `ledger_metadata_lines`, both by `ledger_metadata_fields`.
- `ledger_path`: ledger ids to znode paths and back.
- `layout`, `service_info`, `cookie`: the `LAYOUT` node, a registration, a cookie.
- `protobuf_binary`, `protobuf_text`: the parts of Protocol Buffers that these records need.

Every decoder takes any bytes and raises `WireFormatError` only (`MetadataFormatError` for the
ledger metadata record). Lengths are checked before anything is allocated for them. docs/WIRE.md
shows every format with a worked example.
"""
