"""Recovery of a dead writer's ledger.

- `recovery`: fence, read forward, write back, close once. `fencing`: fences, and finds the LAC.
- `tail`: what follows the LAC. `reads`, `presence_batch`: forward reads. `write_back`: what was
  found, on its way to an ack quorum.
"""
