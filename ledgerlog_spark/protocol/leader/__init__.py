"""The one writer of a leader log, from ledger to ledger."""
