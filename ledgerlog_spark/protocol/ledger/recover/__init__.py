"""Recovery of a dead writer's ledger: fence, read forward, write back, close once."""
