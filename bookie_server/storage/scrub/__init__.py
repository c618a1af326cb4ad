"""The scrub: reads the finished files from the device, and verifies records, indexes and counts.

- `scrubber`: begins passes, and keeps their position. `kept_position`: the file of the position.
- `file_check`: verifies one file. `device_reads`: reads a file past the page cache.
- `pointers`: the pointers of an index, in the order of their records.
- `live_recount`: counts the live bytes of a file again.
"""
