"""Pairs of models whose order is expected, with the paired interval of each seed."""

from collections.abc import Sequence

from ens10.experiments.finished import FinishedRun
from ens10.metrics import summarise

# Each pair's first is expected to have the larger (worse) CRPS.
EXPECTED = (
    ("raw", "emos_global"),
    ("emos_global", "emos_local"),
    ("emos_local", "emos_seasonal"),
    ("emos_global", "mlp"),
    ("mlp", "lenet"),
    ("mlp", "unet"),
    ("lenet", "smoe_unet"),
    ("unet", "smoe_unet"),
    ("smoe_unet", "location_unet"),
    ("location_unet", "deep_ensemble"),
    ("location_unet", "optimum"),
)


def comparisons(
    runs: dict[int, list[FinishedRun]], pairs: Sequence[tuple[str, str]] = EXPECTED
) -> str:
    """Markdown: CRPS skill of the second of each pair against the first, a column for each seed.

    Args:
        runs: of each seed.
        pairs: names; those that no seed has both of are left out.
    """
    lines = ["| CRPS skill, 95 % | " + " | ".join(f"seed {seed}" for seed in runs) + " |"]
    lines.append("|---|" + "---:|" * len(runs))
    for worse, better in pairs:
        cells = [_skill(found, worse, better) for found in runs.values()]
        if any(cells):
            lines.append(
                f"| {better} against {worse} | " + " | ".join(c or "–" for c in cells) + " |"
            )
    return "\n".join(lines) + "\n"


def _skill(runs: Sequence[FinishedRun], worse: str, better: str) -> str:
    states = {run.name: run.states for run in runs}
    if worse not in states or better not in states:
        return ""
    scores = summarise(states[better], states[worse], maps=False)
    value, lower, upper = (100 * float(scores[f"crpss{part}"]) for part in ("", "_lower", "_upper"))
    return f"{value:.1f} % [{lower:.1f}, {upper:.1f}]"
