"""ECMWF open data: GRIB 2 of the IFS and AIFS ensembles, each file with a `.index`.

Source: https://confluence.ecmwf.int/display/DAC/ECMWF+open+data%3A+real-time+forecasts. The IFS has
control and perturbed members in one file (`20260101000000-24h-enfo-ef.grib2`), the AIFS in two
(`...-enfo-cf.grib2`, `...-enfo-pf.grib2`). Precipitation is the sum since the start.
"""

from ens10.source.layouts.registry import Layout, register

register(
    Layout(
        name="ECMWF open data",
        source="https://www.ecmwf.int/en/forecasts/datasets/open-data",
        special="GRIB 2 with .index files; control and perturbed members in one file (IFS) or two "
        "(AIFS)",
    )
)
