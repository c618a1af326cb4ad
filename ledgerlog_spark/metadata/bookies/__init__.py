"""Bookies in the metadata store.

- `registration`: available bookies, cookies, `INSTANCEID`, `LAYOUT`.
- `announcement`: one bookie's ephemeral node, and keeping it there.
"""
