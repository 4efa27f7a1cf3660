"""Names of channels."""

import numpy as np
import pytest
import xarray as xr

from ens10.channels import (
    attributes_of,
    channel_names,
    field_of,
    resolve,
    split,
    split_exactly,
)
from ens10.errors import UnknownNameError


def dataset(levels=(500, 850)):
    flat = xr.DataArray(np.zeros((2, 3)), dims=("latitude", "longitude"))
    upper = xr.concat(
        [flat + n for n in range(len(levels))], xr.Variable("level", np.array(levels))
    )
    return xr.Dataset({"z": upper, "wind_10": flat + 7, "t2m": flat + 8, "msl": flat + 9})


def test_order_of_channels_is_the_catalogues():
    assert channel_names(dataset()) == ["msl", "t2m", "wind_10", "z_500", "z_850"]
    partial = dataset()
    partial["z"].attrs["levels_hpa"] = [850]
    assert channel_names(partial)[-1] == "z_850"
    assert "z_500" not in channel_names(partial)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("t2m", "t2m"), ("2t", "t2m"), ("z500", "z_500"), ("z_500", "z_500"),
        ("wind_10", "wind_10"), ("u10", "u10"), ("10u", "u10"), ("u_10", "u_10"),
        ("z0.5", "z_0.5"), ("q1000", "q_1000"),
    ],
)  # fmt: skip
def test_resolve(given, meant):
    known = ["t2m", "u10", "u_10", "z_0.5", "z_500", "z_50", "q_1000", "wind_10"]
    assert resolve(given, known) == meant


def test_wind_at_10_m_is_never_wind_at_10_hpa():
    with pytest.raises(UnknownNameError, match="u10"):
        resolve("u10", ["u_10", "t2m"])
    with pytest.raises(UnknownNameError, match=r"inputs: 't2n'.*did you mean 't2m'.*t2m, z_500"):
        resolve("t2n", ["t2m", "z_500"], "inputs")


def test_split():
    assert split("z_500") == ("z", 500)
    assert split("t2m") == ("t2m", None)
    assert split_exactly("z_0.5") == ("z", 0.5)
    assert split_exactly("t2m") == ("t2m", None)


def test_field_of():
    held = dataset()
    assert float(field_of(held, "z850").mean()) == 1.0
    assert "level" not in field_of(held, "z850").coords
    assert float(field_of(held, "wind_10").mean()) == 7.0
    assert float(field_of(dataset((0.5, 1.0)), "z_0.5").mean()) == 0.0
    with pytest.raises(UnknownNameError, match="z_500, z_850"):
        field_of(held, "z_700")


def test_attributes():
    assert attributes_of("t2m")["units"] == "K"
    upper = attributes_of("z_500")
    assert upper["units"] == "m2 s-2"
    assert upper["long_name"] == "geopotential at 500 hPa"
    assert upper["level_hpa"] == 500
    assert attributes_of("wind_10") == {}
