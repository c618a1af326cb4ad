"""SIGKILL of real processes during appends (`make kill-test`).

Each round appends to a new ledger from a process of its own, kills a random bookie, the writer, or
everything, starts again what was killed, seals the ledger and reads it from first to last entry.
Acknowledged entries have to be there unchanged, and nothing that was never sent.
"""
