"""What is said about runs, and how it looks: text, PDF and the lines for a paper, all from the log directory alone."""
