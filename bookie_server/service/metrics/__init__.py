"""Metrics of a bookie.

- `counters`: counters of the servers. `loop_lag`: delays of the event loop. `server`: HTTP server.
"""
