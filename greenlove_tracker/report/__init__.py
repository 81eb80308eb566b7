"""What is said about runs, explorations and projections, all of it from the log directory alone."""
