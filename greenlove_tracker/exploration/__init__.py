"""The sample-size exploration scheduler: trains the user's own model for some seconds, and leaves no trace of it."""
