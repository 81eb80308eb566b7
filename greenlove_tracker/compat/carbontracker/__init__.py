"""The names of carbontracker 2.4.7 over the parts of this package: change the import, keep the script.

What each parameter does here, and what is different, stands in ``docs/coming-from-carbontracker.md``.
"""
