"""Experiments in a YAML file: several trainings, how they differ, when they run, and one report of them all."""
