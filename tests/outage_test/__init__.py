"""Under load, first a bookie and then ZooKeeper is away (`make outage-test`)."""
