"""A bookie, then ZooKeeper, is away while a cluster of three works (`make outage-test`)."""
