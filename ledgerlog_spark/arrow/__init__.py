"""RecordBatch to entry and back: the IPC stream in a ledger, its statistics, schemas."""
