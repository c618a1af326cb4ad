"""A bookie and ZooKeeper are away for a while under load, and return (`make outage-test`)."""
