"""A bookie's place in the cluster: registration, session, cookie, questions to the store."""
