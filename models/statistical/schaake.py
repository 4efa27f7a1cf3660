"""Schaake shuffle: members from any marginal forecast, in the order of fields of the past."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Ensemble
from ens10.models.statistical.base import StatisticalMethod, require_same_grid
from ens10.models.statistical.coupling import Coupled, Variant, generator_of

_YEAR = 365.2425 * 86400


class SchaakeShuffle(Coupled):
    """The Schaake shuffle: members in the order of the truth on dates of the past.

    Clark et al. (2004), doi:10.1175/1525-7541(2004)005<0243:TSSAMF>2.0.CO;2. For each forecast,
    as many past dates as members are drawn among those near it in the season; the k-th member has
    at each point the rank of the k-th date's truth. No date is put in the order of its own
    truth. With fewer dates in the window than members the nearest in season are taken.

    The truth of at most `history` training dates, chosen by the seed, is kept in memory and in
    the checkpoint: 4 bytes for each of them and each point.

    Args:
        marginal: the method of the forecast at each point.
        members: number of members of the forecast.
        history: maximum number of stored dates.
        window: half-width of the season, days.
        variant: "quantile" or "random", see `Coupled`.
        seed: seed of the choice of dates, of random levels and of equal ranks.
        estimator: estimator of the forecast's CRPS.

    Raises:
        ArgumentError: fewer dates of history than members and the date itself.
        UnknownNameError: another variant.
    """

    def __init__(
        self,
        marginal: StatisticalMethod,
        members: int = 10,
        history: int = 150,
        window: float = 30.0,
        variant: Variant = "quantile",
        seed: int = 0,
        estimator: Estimator = "plain",
    ) -> None:
        super().__init__(marginal, variant, seed, estimator)
        if not 0 < members < history:
            raise ArgumentError(
                "history",
                f"{history} dates are too few for {members} members, none with its own truth",
                "Keep some dates more than members",
            )
        self.members, self.most, self.window = members, history, window
        self.history: Tensor
        self.history_dates: Tensor
        self.register_buffer("history", torch.zeros(0, 0, 0))
        self.register_buffer("history_dates", torch.zeros(0, dtype=torch.int64))
        self._kept: list[tuple[float, int, Tensor]] = []

    def collect(self, batch: Batch) -> None:
        """Keep the truth of a random sample of dates, NaN where it has no weight."""
        super().collect(batch)
        for n, date in enumerate(batch["dates"].tolist()):
            lot = float(generator_of(date, self.seed, "history").random())
            if len(self._kept) == self.most and (lot, date) >= self._kept[-1][:2]:
                continue
            truth, weights = batch["target"][n].detach().cpu(), batch["weights"][n].cpu()
            field = torch.where(weights > 0, truth, torch.nan).to(torch.float32)
            self._kept = sorted([*self._kept, (lot, date, field)], key=lambda kept: kept[:2])
            del self._kept[self.most :]

    def solve(self) -> None:
        """Solve the marginal method and store the history.

        Raises:
            ArgumentError: fewer training dates than members and the date itself.
        """
        super().solve()
        if len(self._kept) <= self.members:
            self.solved.fill_(False)
            raise ArgumentError(
                "members",
                f"{self.members} need more training dates than that, there are {len(self._kept)}",
                "Use fewer members or more years",
            )
        history = sorted(self._kept, key=lambda one: one[1])
        device = self.history.device
        self.history = torch.stack([field for _, _, field in history]).to(device)
        self.history_dates = torch.tensor([date for _, date, _ in history], device=device)
        self._kept = []

    def forward(self, batch: Batch) -> Ensemble:
        """Return members (N, M, H, W) in the order of the truth on past dates."""
        self._require_solved()
        require_same_grid(self, self.history, batch)
        chosen = [self.dates_for(date) for date in batch["dates"].tolist()]
        return self._members(batch, self.history[torch.from_numpy(np.stack(chosen))])

    def dates_for(self, date: int) -> npt.NDArray[np.int64]:
        """Return positions (M,) in the history of the dates whose order a date (seconds) takes."""
        past = self.history_dates.cpu().numpy()
        return dates_near(past, date, self.members, self.window, self.seed)


def dates_near(
    past: npt.NDArray[np.int64], date: int, members: int, window: float, seed: int
) -> npt.NDArray[np.int64]:
    """Draw dates of the past that are near a date in the season, never that date itself.

    Args:
        past: (D,) dates of the past, seconds.
        date: seconds.
        members: number of dates drawn; less than the number of `past`.
        window: half-width of the season, days; with fewer dates in it the nearest are taken.
        seed: seed of the choice, which also depends on `date`.

    Returns:
        (members,) positions in `past`.
    """
    turns = (past - date) / _YEAR
    away = np.abs(turns - np.round(turns)) * 365.2425
    away[past == date] = np.inf
    near = np.flatnonzero(away <= window)
    if len(near) < members:
        near = np.argsort(away, kind="stable")[:members]
    random = generator_of(date, seed, "dates")
    return np.asarray(random.choice(near, members, replace=False), np.int64)
