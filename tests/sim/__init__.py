"""The cluster simulator: the shipped machines and the shipped storage in virtual time.

`World` owns a `Scheduler`, a network, a metadata store, bookies and clients. A client runs one
machine of `ledgerlog_spark.protocol`; a bookie is the `LedgerStorage` of `bookie_server.storage`
on a disk that loses power, with its coroutines stepped by the same scheduler. A `Checker` is told
what bookies answered, what the store took and what clients were told, and raises `Violation` as
soon as an invariant of docs/PROTOCOL.md breaks.

Random schedules (`schedule.py`) draw everything from a seed, each decision by its own key
(`draws.py`), so a fault can be left out without moving the others; that is how `shrink.py` finds
the few that matter. Scripts (`test_counterexamples.py`) hold, lose and release single messages.
`mutations.py` breaks one rule at a time; each must be noticed.

    python -m tests.sim --schedules 5000 --seed 0      search
    python -m tests.sim --seed 42 --replay             see one schedule
    python -m tests.sim --mutation keep_acks_of_replaced
"""
