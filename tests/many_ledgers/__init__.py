"""A real bookie with 100,000 ledgers: `make many-ledgers`."""
