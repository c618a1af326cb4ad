"""What a bookie measures.

- `counters`, `gauges`: of the service. `loop_lag`: delays of the event loop. `server`: serves them
  over HTTP.
"""
