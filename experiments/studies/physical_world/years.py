"""Scores of pairs of years of the world, which show how much they vary with the weather."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from ens10.experiments.scoring.writers import columns_of, markdown_of, number
from ens10.experiments.studies.physical_world.evaluation import (
    NOT_NORMAL,
    Case,
    correct,
    evaluate,
    flow_share,
)
from ens10.experiments.studies.physical_world.production import STEPS

_SCORES = ("raw", "spread_error", "bias_share", "removed")


def years_table(cases: Mapping[tuple[str, int], Case]) -> pd.DataFrame:
    """Return scores of all targets at the last lead time, a line for each pair of years.

    Corrections are those of `evaluate`, with each year corrected by all others; a single year at
    the end, or one year in all, has a line of its own. Columns are target, units, step (h), years,
    dates, some of the scores of `Line`, and `flow_share` in percent (NaN for precipitation).
    """
    lines = []
    for (target, step), case in cases.items():
        if step != STEPS[-1]:
            continue
        correction = correct(case)
        years = np.array([start.year for start in case.starts])
        different = sorted(set(years.tolist()))
        for pair in (different[i : i + 2] for i in range(0, len(different), 2)):
            part = replace(case, perfect=None, score_mask=np.isin(years, pair))
            line = evaluate(target, step, part, correction)
            flow = np.nan if target in NOT_NORMAL else 100 * flow_share(part)
            lines.append(
                {"target": target, "units": line.units, "step": step}
                | {"years": "-".join(map(str, pair)), "dates": line.dates}
                | {name: getattr(line, name) for name in _SCORES}
                | {"flow_share": flow}
            )
    return pd.DataFrame(lines)


def years_markdown(frame: pd.DataFrame) -> str:
    """Return the table as Markdown, with rounded numbers."""
    formats = {
        "raw": ".4g", "spread_error": ".3f", "bias_share": ".3f", "removed": ".1f",
        "flow_share": ".1f",
    }  # fmt: skip
    headings = [
        "target", "lead (h)", "years", "dates", "CRPS raw", "spread/error", "bias in MSE",
        "EMOS removes (%)", "flow in MSE without bias (%)",
    ]  # fmt: skip
    rows = [
        (
            f"{line['target']} ({line['units']})",
            *(str(line[name]) for name in ("step", "years", "dates")),
            *(number(line[name], form) for name, form in formats.items()),
        )
        for _, line in frame.iterrows()
    ]
    return markdown_of(columns_of(headings, rows, text=(0, 2)))
