"""The names of carbontracker 2.4.7 over the parts of this package: change the import, keep the script.

``docs/coming-from-carbontracker.md`` describes the parameters and the differences.
"""
