"""Options of `format("ledger")`: their table, and the checked values."""
