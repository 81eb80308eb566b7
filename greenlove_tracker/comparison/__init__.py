"""The room of ``greenlove project``: the training of a log, or of so many hours, on this machine and on others."""
