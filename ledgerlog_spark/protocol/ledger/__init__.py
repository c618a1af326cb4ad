"""Replication of one ledger: values, quorums and placement that its three machines share."""
