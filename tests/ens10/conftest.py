"""Small files for the tests of the data path."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from gribfiles import GRID, Field, values_of

from ens10 import prepare
from ens10.catalog import variable
from ens10.grib import Encoder
from ens10.synthetic import World


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes fields as a GRIB file: write(fields, name="a.grib")."""

    def written(fields: Sequence[Field], name: str = "a.grib", **options: object) -> Path:
        encoder = Encoder(GRID, **options)  # type: ignore[arg-type]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for field in fields:
                short, level, date, step, number = field
                file.write(
                    encoder.message(
                        values_of(field),
                        variable(short),
                        date=date,
                        step=step,
                        number=number,
                        level=level,
                    )
                )
        return path

    return written


@pytest.fixture(scope="session")
def tiny(shared: Callable[..., Path]) -> Path:
    """Folder of a world (18 dates, 8 x 16) and its store."""

    def fill(folder: Path) -> None:
        names, days = ["sst", "t2m", "u10", "z", "t"], ["0104", "0702", "1231"]
        World("8x16", range(2000, 2006), days, names, seed=4, members=4).write(folder / "w")
        prepare(folder / "w", folder / "s.zarr", truth=folder / "w" / "truth")

    return shared("tiny", fill)


@pytest.fixture(scope="session")
def small(shared: Callable[..., Path]) -> Path:
    """Folder of a world of one date a year and its store, for tests that copy or rewrite it."""

    def fill(folder: Path) -> None:
        names = ["sst", "t2m", "u10", "z"]
        world = World("8x16", range(2000, 2006), ["0104"], names, 4, levels=(500,), members=4)
        world.write(folder / "w")
        prepare(folder / "w", folder / "s.zarr", truth=folder / "w" / "truth")

    return shared("small", fill)


@pytest.fixture(scope="session")
def store(tiny: Path) -> Path:
    """The store of the tiny world."""
    return tiny / "s.zarr"
