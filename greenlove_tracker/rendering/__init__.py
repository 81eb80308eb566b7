"""How a document looks: PDF, HTML, Markdown, a terminal's tables. It knows no content."""
