"""The tree of nodes in ZooKeeper. This package uses the client library kazoo.

- `session`: one session. `requests`: converts requests, results and errors.
- `request_result`: the answer of one request. `loop_calls`: calls from kazoo's threads to the loop.
- `watches`: watches that last until they are cancelled. `probe`: reads the newest transaction id of
  an ensemble.
"""
