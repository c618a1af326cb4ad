"""Bounds of the memory that a bookie holds for its peers.

- `budget`: shares a bound of bytes among peers. `lanes`: the budgets: adds, reads, control.
"""
