"""Limits of the memory that a bookie holds for its peers.

- `budget`: divides a limited number of bytes among peers. `lanes`: the budgets of a bookie.
"""
