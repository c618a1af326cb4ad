"""The real OsFileSystem under strace, and a model of the device that its calls leave behind."""
