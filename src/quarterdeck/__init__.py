"""Quarterdeck: a self-hosted agent workspace service."""

# The same as in pyproject.toml. Reading it from the package's metadata takes as long as a request.
__version__ = "0.2.0"
