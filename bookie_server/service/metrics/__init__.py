"""Metrics of a bookie.

- `descriptions`: the names and meanings of all metrics. `counters`: counters of the servers.
- `gauges`: values that are read at each scrape.
- `loop_lag`: delays of the event loop. `durations`: quantiles of times.
"""
