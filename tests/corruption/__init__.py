"""Damages each byte of a small directory of a bookie, and asks the bookie for all that it stored.

- `scenarios`: the directories, and what the bookie acknowledged in them.
- `damage`: the cases: each byte of each file, in several ways.
- `judge`: starts a bookie with a damaged directory, asks it, and judges its answers.
- `cookies`: the same for the cookie file.
"""
