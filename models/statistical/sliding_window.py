"""A statistical method that is fitted anew for each forecast, on the last days before its start."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution
from ens10.models.domain import current
from ens10.models.statistical.base import (
    StatisticalMethod,
    join_dates,
    nothing_collected,
    placed_parts,
    single_dates,
)

_DAY = 86400
Past = Callable[[int, int], Sequence[Batch]]


class SlidingWindow(StatisticalMethod):
    """A statistical method that is fitted anew for each forecast, as in operational EMOS.

    The training dates of a forecast are those valid in the last `days` days up to its start, so
    that their truth is available by then (Gneiting et al. 2005, doi:10.1175/MWR2904.1, with 25 to
    50 days). They may belong to any split. The fit for a forecast of 48 h thus uses no truth of
    the last 48 h before its valid time. With one start a day, a window contains `days` dates.

    `solve` fits the method to the last window of the training dates. These coefficients are saved,
    and are used where no past truth is at hand (`ens10 apply`, `load_model`).

    Args:
        method: method to fit, such as EMOS. Windows of some weeks determine no annual cycle.
        days: length of the window.

    Attributes:
        past: function of a valid date (seconds) and a number of days that returns the batches of
            the window, one for each date; None for the coefficients of the last window of the
            training. `StatisticalPostProcessor` sets it.

    Raises:
        ArgumentError: `days` is less than 1, or a method with climates of the places.
    """

    takes_new_points = True

    def __init__(self, method: StatisticalMethod, days: int = 25) -> None:
        super().__init__()
        if days < 1:
            raise ArgumentError("days", f"{days} is too few", "Use 1 or more")
        for part in placed_parts(method):
            reason = (
                f"{type(part).__name__} has a climate of each place, which no window determines"
            )
            raise ArgumentError("method", reason, "Fit it without a window, or use EMOS")
        self.method, self.days = method, days
        self.past: Past | None = None
        self.ends: Tensor
        self.register_buffer("ends", torch.zeros(2, dtype=torch.int64))
        self._unsolved_method = (deepcopy(method),)  # in a tuple: it is not part of the state
        self._window: list[tuple[int, Batch]] = []

    @property
    def fitted_parameters(self) -> int:
        """Those of the method, for one window."""
        return self.method.fitted_parameters

    def collect(self, batch: Batch) -> None:
        """Store the batch's dates, and drop those before the last window."""
        for date, one in zip(batch["dates"].tolist(), single_dates(batch), strict=True):
            copy = {key: cast("Tensor", value).clone() for key, value in one.items()}
            self._window.append((date, cast("Batch", copy)))
        last = max(date for date, _ in self._window)
        self._window = [(date, one) for date, one in self._window if date > last - self.days * _DAY]

    def solve(self) -> None:
        """Fit the method to the last window of the training dates."""
        if not self._window:
            raise nothing_collected(self)
        self._window.sort(key=lambda pair: pair[0])
        self.ends.copy_(torch.tensor([self._window[0][0], self._window[-1][0]]))
        for _, one in self._window:
            self.method.collect(one)
        self.method.solve()
        self.solved.fill_(True)
        self._window = []

    def forward(self, batch: Batch) -> Distribution:
        """Return the forecast of each date by a fit to the window before its start.

        Raises:
            ArgumentError: a window without dates, or a sample that is split between processes.
        """
        self._require_solved()
        if self.past is None:
            forecast: Distribution = self.method(batch)
            return forecast
        if current().size > 1:
            reason = "a sliding window is fitted to whole fields"
            raise ArgumentError("strategy", reason, "Predict without splitting the samples")
        dated = zip(batch["dates"].tolist(), single_dates(batch), strict=True)
        return join_dates([self._fit_window(date)(one) for date, one in dated])

    def _fit_window(self, date: int) -> StatisticalMethod:
        """Fit a copy of the method to the window of the forecast valid at `date` (seconds)."""
        window = self.past(date, self.days) if self.past else []
        if not window:
            day = str(torch.tensor(date).numpy().astype("M8[s]"))[:13]
            raise ArgumentError(
                "days",
                f"the forecast valid at {day} has no date with truth in the {self.days} days "
                "before its start",
                "Use a longer window, or a test split that starts later",
            )
        method = deepcopy(self._unsolved_method[0]).to(self.ends.device)
        for batch in window:
            method.collect(batch)
        method.solve()
        return method
