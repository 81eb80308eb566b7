"""Ways to train that save time, energy or memory, and their comparison on the user's own training."""
