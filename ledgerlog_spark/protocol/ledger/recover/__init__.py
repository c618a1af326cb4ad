"""Recovery of a dead writer's ledger.

- `recovery`: fence, read forward, write back, close once. `fencing`: fences, and finds the LAC.
- `tail`: the entries after the LAC. `reads`, `presence_batch`: forward reads. `write_back`: writes
  the entries found back to an ack quorum.
"""
