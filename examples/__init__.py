"""The examples, shipped with the package."""
