"""Loads the CSV tables under ``data/`` and checks them; every row carries its source and the date it was read."""
