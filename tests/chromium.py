"""The browser that pages are tested in, where there is one."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_browser() -> Iterator[Browser]:
    """Chromium without a window; a fixture of whoever needs it."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next(filter(None, map(shutil.which, CHROMIUMS)), own if Path(own).exists() else None)
        if found is None:
            reason = "HTML reports are NOT tested in a browser: install Chromium (apt-get install chromium)"
            if os.environ.get("CI"):
                pytest.fail(reason)
            warnings.warn(pytest.PytestWarning(reason), stacklevel=1)
            pytest.skip(reason)
        browser = playwright.chromium.launch(executable_path=found)
        yield browser
        browser.close()
