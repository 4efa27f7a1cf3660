"""GEFS reforecast version 2 (GEFSv12): GRIB 2, a file for each member and variable.

Source: https://noaa-gefs-retrospective.s3.amazonaws.com/Description_of_reforecast_data.pdf. Files
are VARIABLE_LEVEL_YYYYMMDDHH_MEMBER.grib2 (`tmp_2m_2000010100_c00.grib2`), c00 the control, p01 to
p04 perturbed, each with a `.idx`. Precipitation is in kg m-2, of windows of 3 and 6 hours in turn.
"""

from ens10.source.layouts.registry import Layout, register

register(
    Layout(
        name="GEFS reforecast 2",
        source="https://registry.opendata.aws/noaa-gefs-reforecast",
        special="GRIB 2, a file for each member and variable; precipitation of 3 and 6 hours in "
        "turn, kg m-2",
    )
)
