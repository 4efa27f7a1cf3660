"""Pairs of models whose order is expected, with the paired interval of each seed."""

from collections.abc import Sequence

from ens10.experiments.finished import FinishedRun
from ens10.experiments.tables import interval_of
from ens10.metrics import Interval, summarise
from ens10.metrics.uncertainty import blocks_in_words

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
    shown: list[Interval] = []
    lines = ["| CRPS skill, 95 % | " + " | ".join(f"seed {seed}" for seed in runs) + " |"]
    lines.append("|---|" + "---:|" * len(runs))
    for worse, better in pairs:
        found = [_skill(held, worse, better) for held in runs.values()]
        if any(found):
            cells = [skill_in_words(skill) if skill else "–" for skill in found]
            lines.append(f"| {better} against {worse} | " + " | ".join(cells) + " |")
            shown += [skill for skill in found if skill]
    return "\n".join([*lines, "", skill_note(shown)]) + "\n"


def skill_in_words(skill: Interval) -> str:
    """Return a skill score and its confidence interval as text, in percent."""
    return f"{100 * skill.value:.1f} % [{100 * skill.lower:.1f}, {100 * skill.upper:.1f}]"


def skill_note(shown: Sequence[Interval]) -> str:
    """How the intervals of paired skills were made."""
    return f"In brackets: 95 % interval, paired over the test dates ({blocks_in_words(shown)})."


def _skill(runs: Sequence[FinishedRun], worse: str, better: str) -> Interval | None:
    states = {run.name: run.states for run in runs}
    if worse not in states or better not in states:
        return None
    return interval_of(summarise(states[better], states[worse], maps=False), "crpss")
