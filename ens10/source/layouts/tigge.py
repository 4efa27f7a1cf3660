"""TIGGE: GRIB 2 of several centres, with control and perturbed members in two files.

Source: https://confluence.ecmwf.int/display/TIGGE/Parameters. Precipitation is the sum since the
start in kg m-2 (paramId 228228), cloud cover is in per cent.
"""

from ens10.source.layouts.registry import Layout, register

register(
    Layout(
        name="TIGGE",
        source="https://confluence.ecmwf.int/display/TIGGE/Parameters",
        special="GRIB 2; control and perturbed members in two files; precipitation in kg m-2",
    )
)
