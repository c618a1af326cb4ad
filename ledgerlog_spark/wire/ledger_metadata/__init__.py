"""A ledger's metadata record in the three formats of Apache BookKeeper.

- `record`: writes format 3 (binary), reads whichever format is found.
- `text`: format 2, the same message as protobuf text. `lines`: format 1, lines. Both read only.
- `fields`: the fields of a record before they are checked against each other.
"""
