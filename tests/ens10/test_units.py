import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.catalog import VARIABLES
from ens10.errors import FileError
from ens10.source.units import in_catalogue_units, unit_of


@pytest.mark.parametrize(
    "same",
    [
        ("m2 s-2", "m**2 s**-2", "m^2 s^-2", "m2/s2", "m2.s-2", "J kg-1", "J/kg", "s-2 m2"),
        ("K", "kelvin", "Kelvin", "degK", " K "),
        ("", "(0 - 1)", "0-1", "0..1", "1", "kg kg**-1", "kg/kg", "dimensionless"),
        ("kg m-2", "kg m**-2", "kg/m2", "kg m^{-2}"),
        ("Pa s-1", "Pa s**-1", "Pa/s", "pascal / second"),
        ("s-1", "s**-1", "1/s", "1 / s"),
        ("m s-1", "m s**-1", "m/s", "metre second-1"),
        ("degC", "celsius", "Celsius", "degree_Celsius", "deg_C", "°C", "C"),
        ("hPa", "millibars", "mbar", "hectopascal"),
    ],
)
def test_spellings_of_one_unit(same):
    assert {unit_of(text) for text in same} == {same[0]}


NO_UNITS = ["0.01 m", "1e-3 kg m-2", "10 hPa", "log(Pa)", "K + 273", "m 2 s", "m s-", "m s-_"]


@pytest.mark.parametrize("text", [*NO_UNITS, f"m s-{5000 * '9'}"])
def test_what_is_no_product_of_units_is_left_alone(text):
    assert unit_of(text) == text


BASES = st.dictionaries(
    st.sampled_from(["m", "s", "kg", "K", "Pa"]), st.sampled_from([-3, -2, -1, 1, 2, 3]), min_size=1
)


@settings(deadline=None)
@given(BASES, st.sampled_from(["", "**", "^"]), st.randoms(use_true_random=False))
def test_order_and_spelling_of_exponents_do_not_matter(bases, power, random):
    parts = [base if n == 1 else f"{base}{power}{n}" for base, n in bases.items()]
    random.shuffle(parts)
    want = " ".join(base if n == 1 else f"{base}{n}" for base, n in sorted(bases.items()))
    assert unit_of(" ".join(parts)) == want


def test_the_catalogues_own_units_are_spelled_so():
    assert all(unit_of(v.units) in (v.units, "") for v in VARIABLES.values())


def field(name, values, **attrs):
    data = da.from_array(np.array(values, "f4"), chunks=-1)
    return xr.DataArray(data, dims="x", name=name, attrs=attrs)


@pytest.mark.parametrize(
    ("name", "units", "given", "want"),
    [
        ("t2m", "degC", -40.0, 233.15),
        ("t2m", "degF", -40.0, 233.15),
        ("t", "Celsius", 0.0, 273.15),
        ("msl", "hPa", 1013.25, 101325.0),
        ("msl", "millibars", 980.0, 98000.0),
        ("tp", "mm", 12.5, 0.0125),
        ("cp", "kg m**-2", 12.5, 0.0125),
        ("tcwv", "mm", 30.0, 30.0),
        ("tcc", "%", 62.5, 0.625),
        ("q", "g kg**-1", 8.0, 0.008),
        ("z", "gpm", 5500.0, 5500.0 * 9.80665),
        ("u10", "knots", 1.0, 1852 / 3600),
        ("v", "km/h", 36.0, 10.0),
        ("w", "hPa s-1", 0.01, 1.0),
    ],
)
def test_conversions_are_lazy_and_recorded(name, units, given, want):
    got = in_catalogue_units(field(name, [given], units=units, long_name="x"), "f")
    assert got.chunks is not None
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [want], rtol=1.2e-7)
    assert got.attrs["units"] == VARIABLES[name].units
    assert got.attrs["converted_from"] == units
    assert got.attrs["long_name"] == VARIABLES[name].long_name
    xr.testing.assert_identical(in_catalogue_units(got, "f"), got)


def test_conversion_is_done_in_double_precision():
    held = field("t2m", np.linspace(-80, 50, 4001), units="degC")
    want = (held.to_numpy().astype("f8") + 273.15).astype("f4")
    np.testing.assert_array_equal(in_catalogue_units(held, "f"), want)


def test_other_spellings_change_the_attribute_alone():
    held = field("z", [1.0], units="m**2 s**-2", mine=1)
    got = in_catalogue_units(held, "f")
    assert got.attrs == {"units": "m2 s-2", "mine": 1}
    assert got.data is held.data


@pytest.mark.parametrize("attrs", [{}, {"units": ""}, {"units": "unknown"}])
def test_fields_that_do_not_tell_their_units_are_taken_as_they_are(attrs):
    held = field("z", [1.0], **attrs)
    assert in_catalogue_units(held, "f") is held
    assert in_catalogue_units(field("other", [1.0], units="furlong"), "f").units == "furlong"


@pytest.mark.parametrize(
    ("name", "units"), [("t2m", "m"), ("w", "m s-1"), ("q", "%"), ("tp", "m s-1"), ("t", "10 K")]
)
def test_other_units_are_refused_with_file_variable_units_and_remedy(name, units):
    ours = VARIABLES[name].units
    with pytest.raises(FileError, match="Convert it") as caught:
        in_catalogue_units(field(name, [1.0], units=units), "folder/a.nc")
    assert str(caught.value).startswith(f"folder/a.nc: {name} has the units {units!r}")
    assert f"in {ours!r}" in str(caught.value)


def test_metres_are_geopotential_heights_only_where_the_file_says_so():
    with pytest.raises(FileError, match="standard_name geopotential_height"):
        in_catalogue_units(field("z", [5500.0], units="m", standard_name="height"), "f")
    said = field("z", [5500.0], units="m", standard_name="geopotential_height")
    got = in_catalogue_units(said, "f")
    np.testing.assert_allclose(got, [5500 * 9.80665], rtol=1.2e-7)
    assert got.attrs["standard_name"] == "geopotential"
