"""Texts that mean harm to a page, and what a page is made of."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

HOSTILE = (
    "<script>pwned = 1; alert(1)</script>",
    '"><img src=x onerror="pwned = 1">',
    "'><svg onload='pwned = 1'>",
    "</style><script>pwned = 1</script>",
    "</title></desc></svg><script>pwned = 1</script>",
    '" onmouseover="pwned = 1" autofocus onfocus="pwned = 1" x="',
    "{{7*7}} {% for x in y %} {# gone #} ${7*7} #{7*7}",
    '"; } body { display: none } @import "http://example.org/x.css"; \\',
    "url(http://example.org/x.png) javascript:pwned=1 --> ]]> <!-- &lt;b&gt; &amp;",
    "a\x00b\x1b[1mc\x7fd \ud800 \udfff \u2028\u2029\r\ne",
    "\u202egnp.exe\u202c \u2066hidden\u2069 שלום é ß Ω ✓ 模 ﷽",
    "w" * 3000,
)


class Skeleton(HTMLParser):
    """The elements of a page with the names of their attributes, and its ids and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: Counter[str | None] = Counter()
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {','.join(name for name, _ in attrs)}")
        self.ids.update(value for name, value in attrs if name == "id")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text.append(data.replace("\xa0", " "))  # an amount keeps its unit on its line
