"""The hosts of vacations.

- `runner`: performs the effects of the machine of one vacation. `vacations`: runs all vacations of
  a cluster. `survey`: what the ledgers have on a bookie, and the reasons not to begin.
"""
