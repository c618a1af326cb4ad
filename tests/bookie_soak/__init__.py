"""Real bookies that write, delete and compact for a while at a fast pace: `make bookie-soak`."""
