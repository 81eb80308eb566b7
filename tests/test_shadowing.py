"""Files beside a script that hide libraries."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from greenlove_tracker import shadowing
from greenlove_tracker.shadowing import (
    HiddenLibraryError,
    give_way,
    hidden_libraries,
    only_libraries,
    script_directories,
)


@pytest.fixture
def beside(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("rlcompleter", "sched", "rapidfuzz"):  # which nobody else here imports
        monkeypatch.delitem(sys.modules, name, raising=False)  # not in a copy: Python imports past one
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


def test_a_scripts_own_directory_is_found_behind_what_it_puts_before(beside, tmp_path_factory, monkeypatch):
    first, late = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("late")
    for directory in (beside, late):
        (directory / "rlcompleter.py").touch()
    main = ModuleType("__main__")
    main.__file__ = str(beside / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "path", [str(first), *sys.path, str(late)])
    assert {str(first), str(beside)} <= script_directories() and str(late) not in script_directories()
    assert hidden_libraries() == {"rlcompleter": str(beside / "rlcompleter.py")}
    main.__file__ = str(late / "train.py")  # behind Python's own modules it hides none of them
    assert hidden_libraries() == {}


def test_the_working_directory_of_a_module_that_is_run_and_no_directory_of_libraries(beside, monkeypatch):
    (beside / "rlcompleter.py").touch()
    main, site = ModuleType("__main__"), str(Path(pytest.__file__).parents[1])
    main.__file__, main.__spec__ = f"{site}/launcher.py", ModuleSpec("launcher", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "path", [site, *sys.path])
    assert hidden_libraries() == {}
    monkeypatch.chdir(beside)
    assert script_directories() >= {str(beside)} and site not in script_directories()
    assert hidden_libraries() == {"rlcompleter": str(beside / "rlcompleter.py")}


def test_it_is_refused_on_our_thread_and_found_by_everybody_else(beside):
    (beside / "rlcompleter.py").write_text("OWNER = 'script'")
    with (
        only_libraries(),
        pytest.raises(HiddenLibraryError, match=r"rlcompleter\.py hides the library rlcompleter; rename the file"),
    ):
        import rlcompleter
    import rlcompleter

    assert rlcompleter.OWNER == "script"


def test_what_we_loaded_gives_way_to_a_scripts_own(beside):
    import sched

    (beside / "sched.py").write_text("OWNER = 'script'")
    (beside / "os.py").touch()  # Python loads its own before any script
    importlib.invalidate_caches()  # Python has just looked there, within the resolution of the file system's clock
    taken = give_way()
    assert taken == {"sched": sched} and "os" in sys.modules
    import sched as of_script

    assert of_script.OWNER == "script"
    assert shadowing.give_way() == {}
