"""Answers the catalog of the JVM engine, in which each log is a table.

- `answers`: one request and its answer, as JSON. `tables`: what each request reads or changes.
- `definitions`: which definitions of tables a log can have. `names`: namespaces of logs.
- `details`: the rows of the metadata tables `history`, `ranges` and `ledgers`.
"""
