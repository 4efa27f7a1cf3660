"""Code that results depend on changes with a new `RESULT_VERSION`, or with a stamp."""

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import result_versions as versions  # noqa: E402


def test_changed_code_has_a_new_number_or_a_stamp():
    code, numbers = versions.changed(json.loads(versions.STAMPS.read_text()), versions.stamps_now())
    assert not code, (
        f"the code of {', '.join(code)} changed. If its results are the same, run "
        f"`python tests/result_versions.py --numbers-unchanged {' '.join(code)}`; if not, raise "
        "its RESULT_VERSION and run `python tests/result_versions.py`"
    )
    assert not numbers, (
        f"{', '.join(numbers)} declares another RESULT_VERSION: run "
        "`python tests/result_versions.py`"
    )


@pytest.fixture
def tree(tmp_path):
    """A small copy: a package, a network with its own number, one that builds on it."""
    networks = tmp_path / "models" / "networks"
    networks.mkdir(parents=True)
    for folder in ("ens10", "metrics", "experiments"):
        (tmp_path / folder).mkdir()
    (tmp_path / "models" / "__init__.py").write_text("RESULT_VERSION = 1\n")
    (tmp_path / "models" / "heads.py").write_text('"""Heads."""\n\n\ndef f(x):\n    return x + 1\n')
    (networks / "__init__.py").write_text("")
    (networks / "unet.py").write_text("RESULT_VERSION = 1\nWIDTH = 8\n")
    text = "from ens10.models.networks.unet import WIDTH\nRESULT_VERSION = 1\n"
    (networks / "smoe.py").write_text(text)
    return tmp_path


def changes(tree, name, text):
    before = versions.stamps_now(tree)
    (tree / "models" / name).write_text(text)
    return versions.changed(before, versions.stamps_now(tree))


def test_layout_comments_and_docstrings_do_not_count(tree):
    same = '"""Other."""\n\ndef f(x):  # adds\n    """Add."""\n\n    return (x + 1)\n'
    assert changes(tree, "heads.py", same) == ([], [])
    assert changes(tree, "heads.py", "def f(x):\n    return x + 2\n") == (["ens10.models"], [])
    assert changes(tree, "heads.py", 'def f(x):\n    return "x"\n') == (["ens10.models"], [])


def test_a_network_is_an_area_of_its_own_and_of_those_that_import_it(tree):
    both = [f"ens10.models.networks.{name}" for name in ("smoe", "unet")]
    assert changes(tree, "networks/unet.py", "RESULT_VERSION = 1\nWIDTH = 9\n") == (both, [])
    found = changes(tree, "networks/unet.py", "RESULT_VERSION = 2\nWIDTH = 9\n")
    assert found == (both[:1], both[1:])  # which one decides of each


def test_the_command_stamps_what_is_decided(tree, monkeypatch, capsys):
    stamps_now = versions.stamps_now
    monkeypatch.setattr(versions, "STAMPS", tree / "stamps.json")
    monkeypatch.setattr(versions, "stamps_now", lambda: stamps_now(tree))
    assert versions.main([]) == 0
    shutil.copy(tree / "models" / "heads.py", tree / "models" / "more.py")
    assert versions.main([]) == 1
    assert "ens10.models: its code changed" in capsys.readouterr().out
    assert versions.main(["--numbers-unchanged", "ens10.models"]) == 0
    assert json.loads(versions.STAMPS.read_text()) == stamps_now(tree)
