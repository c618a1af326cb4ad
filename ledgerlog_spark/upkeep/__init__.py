"""The upkeep service: merges, sweeps and applies retention to the logs of a cluster.

- `service`: upkeep as a separate process. `background`: upkeep in the process of a stream.
- `upkeep`: one pass over all logs. `merge_plan`: which ranges are worth merging. `merging`: merges
  these ranges. `rows`: copies rows of ranges, for merges and for restored versions.

pyarrow is imported only for merges.
"""
