"""SIGKILL of real processes during appends (`make kill-test`).

Each round appends to a new ledger from a separate process, and kills a random bookie, the writer,
or everything. It restarts the killed processes, seals the ledger, and reads all of its entries. All
acknowledged entries must be there unchanged, and only sent entries may be there.
"""
