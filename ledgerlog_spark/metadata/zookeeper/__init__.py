"""The tree of nodes in ZooKeeper. The package uses the client library kazoo.

- `session`: one session. `requests`: converts requests, results and errors.
- `watches`: lasting watches. `probe`: reads the newest transaction id of an ensemble.
"""
