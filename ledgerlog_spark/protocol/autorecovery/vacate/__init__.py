"""Takes a bookie out of service: its copies move to other bookies first.

- `vacating`: the machine that queues moves, and ends when no ledger names the bookie. `messages`:
  its events and effects. `departure`: the progress.
- `share`: the bytes of a ledger on a bookie. `refusals`: the reasons not to begin a vacation.
- `speed`: the rate of a vacation, and the time left.

AUTORECOVERY.md#vacating lists the rules.
"""
