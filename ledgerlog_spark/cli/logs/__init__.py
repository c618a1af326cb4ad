"""`ledgerlog logs`: the commands on named logs."""
