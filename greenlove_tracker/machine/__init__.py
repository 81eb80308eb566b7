"""The machine, the job and the process that a training runs in."""
