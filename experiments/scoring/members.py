"""A report's table of ensemble forecasts: spread/error, and scores at several ensemble sizes.

The fair CRPS supposes that members are drawn independently. A model whose members look at each
other (attention across members, scaling about the mean) breaks that, and can look better by it
while its spread is too large (Roberts 2026). Hence the page shows, beside it, spread/error and how
the score changes with the number of members: as it would for independent members, and measured.
"""

from collections.abc import Sequence

from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.tables import ScoreRow
from ens10.experiments.scoring.writers import ABSENT, Column

SIZES = (2, 5, 10)
_DIGITS = 4


def expected_crps(plain: float, fair: float, members: int, size: float) -> float:
    """Return the expected plain CRPS of a random subset of `size` of the members.

    With A the mean absolute error of a member and D the mean absolute difference of two, the plain
    CRPS of m members is A - (1 - 1/m) D / 2 and the fair one A - D / 2 (Ferro 2014,
    doi:10.1002/qj.2270), so that it is fair + (plain - fair) members / size.

    Args:
        plain: plain CRPS of all members.
        fair: their fair CRPS.
        members: how many there are.
        size: of the subset; infinity gives `fair`.
    """
    return fair + (plain - fair) * members / size


def columns_of_members(runs: Sequence[FinishedRun], rows: Sequence[ScoreRow]) -> list[Column]:
    """Return the columns of the table of ensemble forecasts; empty if there are none."""
    pairs = [(r, row) for r, row in zip(runs, rows, strict=True) if row.members and row.crps_fair]
    if not pairs:
        return []
    units = f" ({pairs[0][1].units})" if pairs[0][1].units else ""
    columns = [
        Column("Model", tuple(row.model for _, row in pairs), numeric=False),
        Column("Spread/error", tuple(_text(_spread_error(row), 3) for _, row in pairs)),
    ]
    for size in SIZES:
        cells = tuple(_text(_expected(row, size)) for _, row in pairs)
        columns.append(Column(f"{size} of its members{units}", cells))
    columns.append(Column(f"Fair{units}", tuple(_text(_expected(row, None)) for _, row in pairs)))
    for size in SIZES:
        cells = tuple(_text(run.sizes.get(size)) for run, _ in pairs)
        if set(cells) != {ABSENT}:
            columns.append(Column(f"Given {size} members{units}", cells))
    return columns


def in_words(runs: Sequence[FinishedRun]) -> list[str]:
    """Return sentences that explain the table."""
    sentences = [
        "“M of its members” is the mean CRPS of M members drawn from the forecast, and Fair that "
        "of infinitely many, if members were independent. A model whose members look at each other "
        "is not such a forecast: its fair CRPS can be low because its members are kept apart, with "
        "spread/error above 1. Judge it by the plain CRPS and spread/error (Roberts 2026)."
    ]
    if any(run.sizes for run in runs):
        sentences.append(
            "“Given M members” was measured: the trained model got the first M raw members. By as "
            "much as “M of its members” is lower, it gains from having seen all of them."
        )
    else:
        sentences.append(
            "How a model of members scores when it is given fewer was not measured for these runs; "
            "`python -m ens10.experiments.runner.sizes RUN` does it."
        )
    return sentences


def _expected(row: ScoreRow, size: int | None) -> float | None:
    if row.crps_fair is None or row.members is None or (size or 0) > row.members:
        return None
    fair = row.crps_fair.value
    return fair if size is None else expected_crps(row.crps.value, fair, row.members, size)


def _spread_error(row: ScoreRow) -> float | None:
    return row.spread_error.value if row.spread_error else None


def _text(value: float | None, digits: int = _DIGITS) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
