"""The commands of docs/data.md run as they stand on the page, in its order, on a small world."""

import pytest
import xarray as xr
from docblocks import commands

import ens10.inspection
from ens10.catalog import month_days
from ens10.cli import main
from ens10.synthetic import World

WINTER = [day for day in month_days() if day <= "0331"]  # what the page fetches
COMMANDS = commands("docs/data.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all commands were run, with the fetched files of one year."""
    path = tmp_path_factory.mktemp("page")
    World("4x8", [2000], WINTER, ["t2m"], members=2, steps=(48,)).write(path / "server")
    days = ["0104", "0702", "1231"]
    World("4x8", range(2000, 2006), days, ["t2m", "u10", "sst"], members=3, steps=(48,)).write(
        path / "world"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setenv("ENS10_BASE_URL", (path / "server").as_uri())
        for command in COMMANDS:
            assert main(command) == 0, command
    return path


def test_the_page_has_its_commands():
    assert [command[0] for command in COMMANDS] == [
        *("download", "download", "download", "inspect", "inspect", "prepare"),
        *("verify", "verify", "verify", "prepare", "prepare", "export", "export", "export"),
    ]


def test_the_files_were_fetched(folder):
    names = {path.name for path in (folder / "raw").iterdir()} - {"checksums.json"}
    assert names == {f"output.sfc.2018{day}" for day in WINTER}
    for name in names:
        assert (folder / "raw" / name).read_bytes() == (folder / "server" / name).read_bytes()


def test_the_request_was_written(folder):
    compile((folder / "request.py").read_text(), "request.py", "exec")


def test_the_store_and_its_exports_agree(folder):
    store = ens10.open_store(folder / "store.zarr", "sfc")["t2m"].load()
    with xr.open_dataset(folder / "t2m.nc", decode_timedelta=False) as dataset:
        assert set(dataset["time"].dt.year.values) == {2005}
        same = store.sel(time=dataset["time"])
        assert (dataset["t2m"].values == same.values).all()
    (row,) = ens10.inspection.inspect_path(folder / "members.grib")
    assert (row.members, row.dates) == (2, store.sizes["time"])
    assert (folder / "truth.grib").stat().st_size


def test_the_climate_is_there(folder):
    climate = ens10.open_store(folder / "climate.zarr", "climate")["t2m"]
    assert climate.sizes["quantile"] == 101
