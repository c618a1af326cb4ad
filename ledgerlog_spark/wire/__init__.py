"""Byte formats shared with Apache BookKeeper, as pure functions over bytes.

- `entry`: the stored entry: 32-byte header, digest, payload. `stored_batch`: several stored entries
  in one piece of memory. `digests`: the four digest types, and the keys from a password.
- `frames`: cuts a byte stream into frames. `opcodes`: operations, flags, the packet header and the
  numbers of outcome codes. `requests`, `answers`: the bodies of v2 frames to and from a bookie.
  `slice_requests`: the requests for byte ranges of entries. `version_3`: recognises and refuses
  requests of version 3.
- `ledger_metadata`: the metadata record of a ledger. `znodes`: the path of a ledger's znode, and
  the `LAYOUT` node. `registration`, `cookie`: the records of a bookie. `underreplication`: the
  nodes of Apache's auto-recovery. `protobuf`: the encodings of Protocol Buffers in which these
  records are stored. `known_bookie`, `accepted_loss`: ledgerlog's own records about a bookie.
  `ledger_loss`: the entries that an operator gave up for the whole cluster. `repair_notes`,
  `repair_nodes`: the notes of ledgerlog's own auto-recovery, and their bytes. `topology`: the
  places of bookies and the policy that an operator set.

A decoder may get any bytes. If they are invalid, it raises `WireFormatError`, or
`MetadataFormatError` for the ledger metadata record, and no other error. A decoder checks a length
before it allocates memory of this length. docs/WIRE.md shows every format with a worked example.
"""
