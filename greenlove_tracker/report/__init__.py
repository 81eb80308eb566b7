"""Reports on runs, explorations and projections, all of them from the log directory alone."""
