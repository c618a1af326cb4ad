"""Tools for the files of a bookie that does not run.

Each tool locks the directory, so that no bookie can use it at the same time. The tools read files
with the code of the storage. Only `rebuild`, `format`, `versions` and `cookies` change files.

- `directory`: opens a directory, and reads its MANIFEST, ledger states and files.
- `excerpts`: the printed part of a long list.
- `inspect`: the content of files, as rows. `journal_files`: the content of journal files, as rows.
- `check`: verifies all checksums and all relations between the files.
- `check_index`: compares the index of a file with the records of the file.
- `entries`: the entries of one ledger, in order.
- `rebuild`: writes the index of a file again.
- `versions`: writes the MANIFEST in another version.
- `format`: deletes the files of a directory.
- `cookies`: shows, creates, corrects and deletes the cookie of a bookie, also in the metadata
  store.
"""
