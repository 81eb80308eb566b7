"""The version of the package, as its logs and reports name it."""

__version__ = "0.1.0"
