"""Files beside a script that hide libraries."""

from __future__ import annotations

import importlib
import sys

import pytest

from greenlove_tracker import shadowing
from greenlove_tracker.shadowing import HiddenLibraryError, give_way, hidden_libraries, only_libraries


@pytest.fixture
def beside(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in (
        "rlcompleter",
        "fractions",
        "numbers",
        "rapidfuzz",
    ):  # Python's own table: it imports past a copy of it
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_what_hides_nothing_of_ours_is_left_alone(beside):
    (beside / "model.py").touch()
    (beside / "test.py").touch()  # Python has a package of this name, which nobody loads
    (beside / "rlcompleter").mkdir()  # a directory without code
    assert hidden_libraries() == {}


def test_what_hides_a_module_of_python_or_of_our_requirements_is_named(beside):
    (beside / "rlcompleter.py").touch()
    (beside / "rapidfuzz").mkdir()
    (beside / "rapidfuzz" / "__init__.py").touch()
    (beside / "json.py").touch()  # loaded long ago
    assert hidden_libraries() == {
        "rlcompleter": str(beside / "rlcompleter.py"),
        "rapidfuzz": str(beside / "rapidfuzz" / "__init__.py"),
    }


def test_it_is_refused_on_our_thread_and_found_by_everybody_else(beside):
    (beside / "rlcompleter.py").write_text("OWNER = 'script'")
    with only_libraries(), pytest.raises(HiddenLibraryError, match=r"rlcompleter\.py hides the library rlcompleter"):
        import rlcompleter
    import rlcompleter

    assert rlcompleter.OWNER == "script"


def test_what_we_loaded_gives_way_to_a_scripts_own(beside):
    import fractions

    (beside / "fractions.py").write_text("OWNER = 'script'")
    (beside / "os.py").touch()  # Python loads its own before any script
    importlib.invalidate_caches()  # Python has just looked there, within the resolution of the file system's clock
    taken = give_way()
    assert taken == {"fractions": fractions} and "os" in sys.modules
    import fractions as of_script

    assert of_script.OWNER == "script"
    assert shadowing.give_way() == {}
