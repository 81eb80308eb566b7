"""A hook of mkdocs: links that lead out of docs/ become plain text on the site; on a forge they work as they are."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_more: object) -> str:
    """Return the text of a page without its links to files beside docs/.

    Args:
        markdown: as written.
        page: mkdocs' page, for where it lies.
    """
    directory = posixpath.dirname(page.file.src_uri)

    def unlinked(link: re.Match[str]) -> str:
        target = link[2]
        is_outside = "://" not in target and posixpath.normpath(posixpath.join(directory, target)).startswith("..")
        return link[1] if is_outside else link[0]

    return _LINK.sub(unlinked, markdown)
