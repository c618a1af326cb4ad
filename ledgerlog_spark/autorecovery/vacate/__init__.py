"""The hosts of vacations.

- `runner`: performs the effects of the machine of one vacation. `vacations`: runs all vacations of
  a cluster. `survey`: reads the ledgers that name a bookie, and the state of the cluster.
"""
