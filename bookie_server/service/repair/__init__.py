"""Repair: fetches from other bookies the entries that this bookie may have lost (ADR 41).

- `ports`: the interfaces to the storage, the metadata store and other bookies.
- `one_ledger`: performs the effects of the repair of one ledger. `held_bytes`: checks the digests
  of entries. `pace`: limits the bytes that are fetched per second, and the copies that are being
  stored.
- `repairs`: decides which ledger is repaired next, and recovers idle ledgers that stay open.
  `damaged`: the ledgers with damaged entries, and their next repairs. `progress`: the state of the
  repair, for administrators.
- `adapters`: implements the ports with the metadata stores and the transport of clients.
- `acceptance`: ends the limbo of a ledger with lost entries, when an operator accepts the loss.
  `audit`: the file that lists the accepted losses. `composed`: connects all parts.

`Repairs` and its parts use only ports, so the simulator of losses (`tests/sim/loss`) can run them.
"""
