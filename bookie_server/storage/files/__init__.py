"""The files of a bookie's directory: entry-log files, slots, the manifest."""
