"""Bookies in the metadata store.

- `registration`: available bookies, cookies, `INSTANCEID`, `LAYOUT`.
- `announcement`: creates one bookie's ephemeral node, and replaces the node when it is lost.
"""
