"""Metrics of a bookie.

- `counters`, `gauges`: those of the service. `loop_lag`: delays of the event loop. `server`: serves
  over HTTP.
"""
