"""ERA5-Land, whose hourly precipitation is the sum since 00 UTC of the day.

Source: https://confluence.ecmwf.int/display/CKB/ERA5-Land%3A+data+documentation, "Accumulations".
Files that do not name ERA5-Land in an attribute cannot be told from ERA5, with sums of one hour.
"""

import xarray as xr

from ens10.identity import SINCE_MIDNIGHT
from ens10.source.layouts.registry import Layout, register

_WORDS = ("era5-land", "era5_land", "era5 land")


def _matches(dataset: xr.Dataset) -> bool:
    fields = dataset.data_vars.values()
    attributes = [(key, text) for of in (dataset, *fields) for key, text in of.attrs.items()]
    texts = [str(text).lower() for key, text in attributes if key != "history"]
    return any(word in text for text in texts for word in _WORDS)


register(Layout(
    name="ERA5-Land", matches=_matches,
    source="https://confluence.ecmwf.int/display/CKB/ERA5-Land%3A+data+documentation",
    special="truth; precipitation since 00 UTC of the day, if an attribute names ERA5-Land",
    accumulation=dict.fromkeys(("tp", "total_precipitation"), SINCE_MIDNIGHT),
))  # fmt: skip
