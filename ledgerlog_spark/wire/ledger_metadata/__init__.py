"""A ledger's metadata record in the three formats of Apache BookKeeper.

- `record`: encodes records in format 3, which is binary, and decodes records in any format.
- `older_formats`: converts records in format 1 (lines) and format 2 (protobuf text) to format 3.
"""
