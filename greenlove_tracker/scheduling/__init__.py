"""When and where to run: the start that is expected to emit or cost least, and waiting for it. Imports nothing."""
