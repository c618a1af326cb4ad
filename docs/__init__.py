"""The documentation: pages here, generators in `generate`; `make docs` builds the site."""
