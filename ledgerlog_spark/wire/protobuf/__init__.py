"""The parts of Protocol Buffers that BookKeeper's records need.

- `binary`: the binary encoding. `text`: the text format.
"""
