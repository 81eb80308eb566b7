"""The best time and place to run: the start expected to emit or cost least, and waiting for it. It loads nothing."""
