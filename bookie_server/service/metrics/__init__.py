"""Metrics of a bookie.

- `counters`: those of the service. `loop_lag`: delays of the loop. `server`: serves over HTTP.
"""
