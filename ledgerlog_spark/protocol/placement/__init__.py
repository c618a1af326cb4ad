"""Chooses the bookies for the entries of a ledger, without reading clocks or random numbers.

- `place`: fills the empty indexes of an ensemble. `search`: finds the first ensemble that is spread
  over enough hosts, racks and regions. `replacement`: replaces failed bookies. `absent_members`:
  chooses the first ensemble of a ledger.
- `policy`: the rules. `adherence`: compares an ensemble with the rules.
- `places`: the bookies of a cluster, and where they are. `preference`: orders bookies by their free
  bytes. `quarantine`: the bookies that recently failed several times.

AUTORECOVERY.md#placement lists the rules.
"""
