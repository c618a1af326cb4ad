"""A ledger's metadata record in the three formats of Apache BookKeeper.

- `record`: writes format 3 (binary), and reads all three formats.
- `older_formats`: reads format 2 (the same message as protobuf text) and format 1 (lines).
"""
