"""The one writer of a ledger: its adds, failed bookies replaced, the close."""
