"""The log directory: its schema, writer, parser and totals."""
