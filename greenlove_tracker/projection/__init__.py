"""What a training would take, cost and emit on other GPUs."""
