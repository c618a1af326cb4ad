"""A log as a list of ledger ranges: machines of one request at a time, on the log store."""
