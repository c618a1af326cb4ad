"""Schedules in which bookies lose acknowledged records, and repair them from other bookies.

The clients are the shipped machines, as in the other schedules of `tests.sim`. A bookie is a model
of its storage, `LossBookie`, with the decisions that ship: `ledger_gate`, `doubt` and `repair` of
`bookie_server.core`. The model is smaller than the storage, so tens of thousands of schedules run.
"""
