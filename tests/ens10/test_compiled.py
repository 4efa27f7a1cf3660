"""Where compiled loops are kept if neither the source's folder nor a home can be written."""

import tempfile

import numba
import pytest
from numba.core import caching

from ens10 import compiled


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No folder but one that is named; temporary files in `tmp_path`."""
    kinds = caching.CacheImpl._locator_classes
    named = [kind for kind in kinds if kind.__name__.endswith("UserProvidedCacheLocator")]
    assert named
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", named)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_private_folder_among_the_temporary_files_is_used(nowhere):
    assert compiled.cache_works()
    (folder,) = nowhere.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700

    @numba.njit(**compiled.OPTIONS | {"cache": True})
    def double(x):
        return 2 * x

    assert double(2) == 4
    assert list(folder.rglob("*.nbi"))


def test_a_folder_of_somebody_else_is_not_used(nowhere, monkeypatch):
    theirs = nowhere / "theirs"
    theirs.mkdir()
    (nowhere / f"ens10-compiled-{compiled.os.getuid()}").symlink_to(theirs)
    assert not compiled.cache_works()
    assert not list(theirs.iterdir())


def test_without_any_folder_loops_are_compiled_anew(nowhere, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere / "none"))
    assert not compiled.cache_works()


def test_no_folder_that_is_called_tilde_is_made(nowhere, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compiled.Path, "home", no_home)
    monkeypatch.setattr(compiled.os, "access", lambda *_: False)
    monkeypatch.setattr(compiled, "_cache_is_writable", lambda: numba.config.CACHE_DIR != "")
    assert compiled.cache_works()
    assert numba.config.CACHE_DIR.startswith(str(nowhere))


def test_a_changed_source_is_compiled_anew(tmp_path):
    """The cached code of a loop is not loaded after its source changed, at the same length."""
    text = (
        "import numba\nfrom ens10.compiled import OPTIONS\n\n\n"
        "@numba.njit(**OPTIONS | {'cache': True})\ndef scaled(x):\n    return FACTOR * x\n"
    )
    path = tmp_path / "loops.py"
    found, hits = [], []
    for factor in ("2.0", "2.0", "3.0"):
        source = text.replace("FACTOR", factor)
        if not path.exists() or path.read_text() != source:
            path.write_text(source)
        names = {"__name__": "loops"}
        exec(compile(source, str(path), "exec"), names)  # as an import, without its cache
        found.append(names["scaled"](1.0))
        hits.append(sum(names["scaled"].stats.cache_hits.values()))
    assert found == [2.0, 2.0, 3.0]
    assert hits == [0, 1, 0]
