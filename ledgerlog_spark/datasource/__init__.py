"""`format("ledger")` in Spark: options, planning, readers and writers (design 7)."""
