"""Which bookies store the entries of a ledger: pure functions, without clock and randomness.

`place.py` fills the empty indexes of an ensemble, and `replacement.py` replaces failed bookies.
`adherence.py` compares an ensemble with the policy (`policy.py`). `places.py` describes the bookies
of a cluster, `preference.py` orders them by their free bytes, and `quarantine.py` lists the bookies
that failed a moment ago. AUTORECOVERY.md has the rules (Z).
"""
