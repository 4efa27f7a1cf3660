import eccodes
import numpy as np
import pytest

from ens10.catalog import HINDCAST_YEARS, VARIABLES, month_days, names_of_kind, variable
from ens10.errors import UnknownNameError


def test_parameters_are_those_of_eccodes():
    for known in VARIABLES.values():
        handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
        if known.kind == "pl":
            eccodes.codes_set(handle, "indicatorOfTypeOfLevel", 100)
        eccodes.codes_set(handle, "centre", "ecmf")
        eccodes.codes_set(handle, "paramId", known.param_id)
        assert eccodes.codes_get(handle, "shortName") == known.short_name
        assert eccodes.codes_get(handle, "cfVarName") == known.name
        eccodes.codes_release(handle)
    assert (len(names_of_kind("sfc")), len(names_of_kind("pl"))) == (11, 7)


def test_short_names_are_aliases_and_others_are_refused():
    assert variable("2t").name == variable("t2m").name == "t2m"
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        variable("t2n")


def test_the_pairs_of_the_paper():
    # 31 December 2017 + 48 h is 2 January 2018: the only one of 2100 starts that falls out, since
    # the truth ends with 2017.
    days = [f"{year}-{day[:2]}-{day[2:]}" for year in HINDCAST_YEARS for day in month_days()]
    valid = np.array(days, dtype="datetime64[D]") + 2
    years = valid.astype("datetime64[Y]").astype(int) + 1970
    assert len(days) == 2100
    assert np.isin(years, HINDCAST_YEARS).sum() == 2099
    assert ((years >= 1998) & (years <= 2015)).sum() == 1889
    assert np.isin(years, (2016, 2017)).sum() == 210
    assert [str(v) for v in valid[~np.isin(years, HINDCAST_YEARS)]] == ["2018-01-02"]
