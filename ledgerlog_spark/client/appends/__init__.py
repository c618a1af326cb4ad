"""Appends that wait to be sent.

- `batches`: gathers appends into runs. `pace`: when a run is sent.
"""
