"""The upkeep service: merges, sweeps and applies retention to the logs of a cluster.

- `service`, `background`: the two forms of the service: a process of its own, or a part of another.
- `upkeep`: one pass over all logs. `merge_plan`: which ranges are worth merging. `merging`: merges
  them. `rows`: copies rows of ranges, for merges and for restored versions.

pyarrow is imported only when it merges.
"""
