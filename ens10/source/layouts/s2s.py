"""Daily means of the S2S database: GRIB 2, means over the 24 hours that end at the step.

Source: https://confluence.ecmwf.int/display/S2S/Parameters (template 4.11, mean over 24 hours).
ecCodes calls the 2 metre temperature `2t` in messages of S2S (production status 6 or 7), and
`avg_2t` (paramId 228004) in others. Its truth is a daily mean, too.
"""

from ens10.source.layouts.registry import Layout, register

register(
    Layout(
        name="S2S daily means",
        source="https://confluence.ecmwf.int/display/S2S/Parameters",
        special="GRIB 2; avg_2t is the mean of the 24 hours that end at the step",
    )
)
