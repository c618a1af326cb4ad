"""The upkeep service: merges and sweeps the logs of a cluster, and applies their retention.

- `service`: upkeep as a separate process. `upkeep`: one pass over all logs. The process of a stream
  can also run such a pass.
- `merge_plan`: decides which ranges are worth merging. `merging`: merges these ranges. `rows`:
  copies rows of ranges, for merges and for restored versions.

The package imports pyarrow only for merges.
"""
