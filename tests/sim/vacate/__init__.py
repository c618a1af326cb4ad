"""Random schedules of vacations: two auditors, writers with old lists, a bookie that returns.

Run `python -m tests.sim.vacate`. The machine is the shipped one. The stores, the workers, the
writers and the bookie are small models in virtual time.
"""
