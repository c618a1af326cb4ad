"""Chooses the bookies that store the entries of a ledger.

All functions are pure: they use no clock and no random numbers.

- `place`: fills the empty indexes of an ensemble. `search`: finds the first ensemble that is spread
  over enough hosts, racks and regions. `replacement`: replaces failed bookies. `absent_members`:
  chooses the first ensemble of a ledger.
- `policy`: the rules. `adherence`: compares an ensemble with the rules.
- `places`: the bookies of a cluster, and where they are. `preference`: orders bookies by their free
  bytes. `quarantine`: the bookies that recently failed several times.

AUTORECOVERY.md#placement lists the rules.
"""
