"""Repair: fetches from other bookies the entries that this bookie may have lost (ADR 41).

- `ports`: the interfaces to the storage, the metadata store and other bookies.
- `one_ledger`: performs the effects of the repair of one ledger. `held_bytes`: checks the digests
  of entries. `pace`: the limit of bytes per second, and of the copies that are being stored.
- `repairs`: decides which ledger is repaired next, and recovers ledgers that stay open.
  `damaged`: the ledgers with damaged entries that the scrub found.
  `progress`: the state of the repair, for administrators.
- `adapters`: the ports on the metadata stores and on the transport of clients.
- `acceptance`: ends the limbo of a ledger with lost entries, when an operator accepts the loss.
  `audit`: the file with these decisions. `composed`: connects all parts.

`Repairs` and its parts use only ports, so the simulator of losses (`tests/sim/loss`) runs them.
"""
