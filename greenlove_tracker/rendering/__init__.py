"""Renders documents: PDF, HTML, Markdown, and a terminal's tables. It knows no content."""
