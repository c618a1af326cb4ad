"""Protocol Buffers as far as BookKeeper's records need them.

- `binary`: the binary encoding. `text`: the text format.
"""
