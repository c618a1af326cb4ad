"""The cluster simulator: the shipped machines and the shipped storage in virtual time.

`World` owns a `Scheduler`, a network, a metadata store, bookies and clients. A client runs one
machine of `ledgerlog_spark.protocol`. A bookie is the storage of `bookie_server.storage` on one or
two disks (`directories.py`) that can lose power, and the same scheduler steps its coroutines. A
`Checker` gets the answers of bookies, the changes of the store and the results of clients. It
raises `Violation` as soon as an invariant of docs/PROTOCOL.md does not hold.

Random schedules (`schedule.py`) draw everything from a seed, each decision by its own key
(`draws.py`). So a fault can be left out without an effect on the others, and `shrink.py` can find
the few faults that matter. Scripts (`test_counterexamples.py`) hold, lose and release single
messages. `mutations.py` breaks one rule at a time, and a test must notice each broken rule.

    python -m tests.sim --schedules 5000 --seed 0      run 5,000 schedules
    python -m tests.sim --seed 42 --replay             show one schedule
    python -m tests.sim --mutation keep_acks_of_replaced
"""
