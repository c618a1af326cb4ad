"""Byte formats shared with Apache BookKeeper, as pure functions over bytes.

- `entry`: the stored entry: 32-byte header, digest, payload. `stored_batch`: many of them in one
  piece of memory. `digests`: the four digests of an entry, and the keys that a password becomes.
- `frames`: cuts a byte stream into frames. `opcodes`: operations, flags, the packet header and the
  numbers of outcome codes. `requests`, `answers`: the bodies of v2 frames in either direction.
  `version_3`: recognises and refuses requests of version 3.
- `ledger_metadata`: the ledger's record. `znodes`: ledger ids to znode paths and back, the `LAYOUT`
  node. `registration`, `cookie`: a registration, a cookie. `protobuf`: the encodings of Protocol
  Buffers that these records need.

Every decoder takes any bytes and raises `WireFormatError` only (`MetadataFormatError` for the
ledger metadata record). Lengths are checked before anything is allocated for them. docs/WIRE.md
shows every format with a worked example.
"""
