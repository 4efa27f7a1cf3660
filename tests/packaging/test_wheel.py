"""What is in the wheel and in the source distribution."""

import tarfile
import zipfile

import pytest
from environments import Environment, run

pytestmark = pytest.mark.slow


def packaged(project):
    """The files of the tree that belong into the wheel, as they are named there."""
    names = {"ens10/py.typed"}
    for folder in ("ens10", "metrics", "models", "experiments"):
        for path in (project / folder).rglob("*"):
            name = path.relative_to(project).as_posix()
            if path.suffix in (".py", ".yaml") and not name.startswith("experiments/results/"):
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
    assert licences == {"LICENSE", "NOTICE"}
    assert "License-Expression: Apache-2.0" in told
    assert all(name.split("/")[0] in ("ens10", metadata.split("/")[0]) for name in names)


def test_the_sdist_holds_the_tests_and_each_file_once(distributions, project):
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = [m.name.split("/", 1)[1] for m in archive.getmembers() if not m.isdir()]
    assert len(files) == len(set(files))
    for folder in ("metrics", "models", "experiments"):
        assert not [name for name in files if name.startswith(f"ens10/{folder}/")]
    for name in ("tests/data/era5-levels-members.grib", "constraints.txt", "metrics/crps.py"):
        assert name in files
        assert (project / name).is_file()


def test_a_wheel_from_the_checkout_is_the_same(wheel, project, tmp_path):
    environment = Environment(tmp_path / "environment")
    run(environment.bin / "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, project)
    (made,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as ours, zipfile.ZipFile(wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
