"""Takes a bookie out of service after its copies have moved to other bookies.

- `vacating`: the machine of a vacation. It puts moves into a queue, and ends when no ledger names
  the bookie. `messages`: the events and effects of this machine. `departure`: the progress of a
  vacation.
- `share`: the bytes of a ledger on a bookie. `refusals`: the reasons for which a vacation must not
  begin.
- `speed`: the rate of a vacation, and the time left.

AUTORECOVERY.md#vacating lists the rules.
"""
