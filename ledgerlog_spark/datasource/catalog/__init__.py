"""Answers the requests of the JVM engine's catalog, in which each log is a table.

- `answers`: one request and its answer, as JSON. `tables`: reads and changes logs for the requests.
- `definitions`: the table definitions that a log can represent. `names`: namespaces of logs.
- `details`: the rows of the metadata tables `history`, `ranges` and `ledgers`.
"""
