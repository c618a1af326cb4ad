"""Recovery of a dead writer's ledger.

- `recovery`: fence, read forward, write back, close once. `fencing`: fences, and finds the LAC.
- `tail`: the entries after the LAC, written back to an ack quorum. `reads`: forward reads.
"""
