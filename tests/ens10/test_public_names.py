"""What `import ens10` offers is the same whatever was imported before."""

from importlib import import_module

import pytest

import ens10
from ens10.errors import FileError


@pytest.mark.parametrize("name", sorted(set(ens10.__all__) - {"__version__"}))
def test_functions_are_functions_also_when_their_modules_are_there(name):
    import_module(ens10._HOMES[name])
    assert callable(getattr(ens10, name))
    assert callable(getattr(ens10, name))


@pytest.mark.parametrize("time", ["first", "second"])
def test_export_is_no_bare_module(time, tmp_path):
    with pytest.raises(FileError, match="nothing"):
        ens10.export(tmp_path / "nothing", tmp_path / "x.nc")


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'exprot'"):
        _ = ens10.exprot
