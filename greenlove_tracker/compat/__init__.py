"""The names of other tools over the parts of this one: change the import, keep the script."""
