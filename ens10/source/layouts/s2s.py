"""Daily means of the S2S database: GRIB 2, `avg_2t` of the 24 hours that end at the step.

Source: https://confluence.ecmwf.int/display/S2S/Parameters (template 4.11, processing 0, 24 hours).
A daily mean is another field than the temperature of an hour, so that it keeps its name: its truth
is a daily mean, too, mapped with `variables: {t2m: avg_2t}`.
"""

from ens10.source.layouts.registry import Layout, register

register(
    Layout(
        name="S2S daily means",
        source="https://confluence.ecmwf.int/display/S2S/Parameters",
        special="GRIB 2; avg_2t is the mean of 24 hours, which is not t2m and keeps its name",
    )
)
