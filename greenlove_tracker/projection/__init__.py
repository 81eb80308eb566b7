"""The training on other GPUs: time, energy, cost and CO2e."""
