"""Every Python and PySpark that pyproject.toml allows, each with its own environment."""
