"""Files: reading those that somebody else may have written, and writing whole ones."""
