"""Recovery of a dead writer's ledger.

- `recovery`: the whole recovery, and the close. `fencing`: fences the bookies and finds the LAC.
- `tail`: writes the entries after the LAC back to an ack quorum. `reads`: reads these entries.
"""
