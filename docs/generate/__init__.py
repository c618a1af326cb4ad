"""Generates the pages of the reference from the code, while the site is built.

- `hooks`: functions that MkDocs calls.
- `pages`: the list of generated pages.
- `commands`: the commands of the command line.
- `options`: options of `format("ledger")`.
- `settings`: settings of a bookie and of a client.
- `metrics`: metrics of a bookie, events of upkeep.
- `errors`: the exceptions.
- `modules`, `rules`, `constants`: the modules; for each rule, the modules that cite it; the numeric
  constants.
- `sources`: the source files of both packages.
- `docstrings`: reads texts from docstrings.
- `markdown`: writes tables in Markdown.
"""
