"""The sample-size exploration scheduler: trains the user's own model for some seconds, and puts it back."""
