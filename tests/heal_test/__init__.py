"""Members of a cluster are killed under load, and all copies must come back (`make heal-test`)."""
