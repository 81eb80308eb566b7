"""Settings, the files that hold them, and what is secret in them."""
