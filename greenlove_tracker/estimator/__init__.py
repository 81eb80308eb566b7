"""What a training will take, before it starts: explore, extrapolate, tell, ask."""
