"""Figures of the tree: `python -m tests.architecture.house [--root PATH] [--json FILE]`.

`areas` lists the files and names the folders; `lines` classifies lines; `imports` reads the graph
of imports; `moves` counts the moves of an append in a process of its own; `tics` has the turns of
phrase to avoid and their matcher; `figures` puts the numbers together and `report` prints them.
"""
