"""The upkeep service: merges, sweeps and applies retention to the logs of a cluster.

- `service`: upkeep as a separate process. `upkeep`: one pass over all logs, also in the process of
  a stream.
- `merge_plan`: which ranges are worth merging. `merging`: merges these ranges. `rows`: copies rows
  of ranges, for merges and for restored versions.

pyarrow is imported only for merges.
"""
