"""What is in the wheel and in the source distribution."""

import re
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distributions

import pytest
from environments import ROOT, run
from mypy.modulefinder import FindModuleCache, SearchPaths
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow


def project_table():
    """What pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# of a checkout alone: results, studies and their configurations
CHECKOUT = (
    *("experiments/results/", "experiments/studies/", "experiments/ablations/"),
    "experiments/configs/heat_",
)
ALIAS = "experiments/studies/reproduce/__init__.py"


def packaged(project):
    """The files of the tree that belong into the wheel, as they are named there."""
    names = {
        "ens10/py.typed",
        "ens10/experiments/results/full_size/h200.json",
        "ens10/experiments/results/full_size/throughput.json",
        f"ens10/{ALIAS}",
    }
    for folder in ("ens10", "metrics", "models", "experiments"):
        for path in (project / folder).rglob("*"):
            name = path.relative_to(project).as_posix()
            if path.suffix in (".py", ".yaml", ".css", ".js", ".j2") and not name.startswith(
                CHECKOUT
            ):
                names.add(name if folder == "ens10" else f"ens10/{name}")
    return names


def test_the_wheel_holds_ens10_and_nothing_else(wheel, project):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        inner = {name for name in names if ".dist-info/" not in name}
        licences = {name.rsplit("/", 1)[1] for name in names if "/licenses/" in name}
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    assert inner == packaged(project)
    assert {"ens10/models/heads.py", "ens10/experiments/configs/mlp.yaml"} <= inner
    assert "ens10/experiments/mappings/seas5_era5_t2m.yaml" in inner
    assert "ens10/experiments/reproduce/command.py" in inner
    assert not inner & {
        "ens10/experiments/configs/heat_smoe.yaml",
        "ens10/experiments/studies/matrix.py",
    }
    assert licences == {"LICENSE", "NOTICE"}
    assert "License-Expression: Apache-2.0" in told
    assert all(name.split("/")[0] in ("ens10", metadata.split("/")[0]) for name in names)


def test_the_sdist_holds_the_tests_and_each_file_once(sdist, project):
    with tarfile.open(sdist) as archive:
        files = [m.name.split("/", 1)[1] for m in archive.getmembers() if not m.isdir()]
    assert len(files) == len(set(files))
    for folder in ("metrics", "models", "experiments"):
        assert not [name for name in files if name.startswith(f"ens10/{folder}/")]
    for name in ("tests/data/era5-levels-members.grib", "constraints.txt", "metrics/crps.py"):
        assert name in files
        assert (project / name).is_file()


def contents(wheel):
    """Size and checksum of each file; RECORD is the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        infos = [i for i in archive.infolist() if not i.filename.endswith(("/", "/RECORD"))]
        return {info.filename: (info.file_size, info.CRC) for info in infos}


def test_a_wheel_from_the_checkout_is_the_same(wheel, project, tmp_path):
    """The one from the source distribution has the same files, byte by byte."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, project)
    (made,) = tmp_path.glob("*.whl")
    assert contents(made) == contents(wheel)


def test_what_pip_is_told(wheel):
    """Dependencies, extras and entry points are those of pyproject.toml."""
    told = project_table()
    (found,) = distributions(path=[str(wheel)])  # a wheel is a zip file that can be imported from
    needs = {str(need) for need in map(Requirement, found.requires)}
    assert {str(Requirement(need)) for need in told["dependencies"]} <= needs
    assert set(found.metadata.get_all("Provides-Extra")) == set(told["optional-dependencies"])
    for extra, brought in told["optional-dependencies"].items():
        for need in brought:
            assert str(Requirement(f"{need}; extra == {extra!r}")) in needs
    points = {(point.group, point.name, point.value) for point in found.entry_points}
    assert points == {
        ("console_scripts", "ens10", told["scripts"]["ens10"]),
        ("zarr.codecs", "packed16", told["entry-points"]["zarr.codecs"]["packed16"]),
    }


def test_what_the_entry_points_name_is_there(with_torch, tmp_path):
    assert re.fullmatch(r"ens10 [\d.]+\n", with_torch.command("--version", cwd=tmp_path))
    ask = "from importlib.metadata import entry_points as e; (p,) = e(group='zarr.codecs', name="
    said = with_torch.python("-c", f"{ask}'packed16'); print(p.load().__name__)", cwd=tmp_path)
    assert said == "Packed16\n"


def test_the_former_name_of_reproduce_is_an_alias(with_torch, tmp_path):
    code = (
        "import ens10.experiments.studies.reproduce.command as old; "
        "from ens10.experiments.reproduce import command as new; print(old is new)"
    )
    assert with_torch.python("-c", code, cwd=tmp_path) == "True\n"


def test_type_checkers_take_the_hints(with_torch):
    """mypy's own search finds the installed modules, which it does with py.typed alone."""
    paths = SearchPaths((), (), (str(with_torch.site),), ())
    found = FindModuleCache(paths, None, None).find_module("ens10.metrics.crps")
    assert found == str(with_torch.site / "ens10" / "metrics" / "crps.py")
