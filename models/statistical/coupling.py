"""Members of any forecast in the order of the raw members (ECC) or of past fields (Schaake)."""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Distribution, Ensemble
from ens10.models.statistical.base import StatisticalMethod, members_of, require_same_grid

Variant = Literal["quantile", "random"]
_LEAST_LEVEL = 1e-6  # a random level of 0 would be drawn as -inf


class Coupled(StatisticalMethod):
    """A marginal method whose forecast is turned into members with the ranks of a template.

    Args:
        marginal: the method of the forecast at each point.
        variant: "quantile": the levels (k - 1/2) / M, which have the least plain CRPS (Brocker
            2012, doi:10.1002/qj.1891); "random": M random levels, drawn for each date and used at
            all points, so that they add no noise in space.
        seed: seed of random levels and of the order of equal ranks.
        estimator: estimator of the forecast's CRPS.

    Raises:
        UnknownNameError: another variant.
    """

    def __init__(
        self,
        marginal: StatisticalMethod,
        variant: Variant = "quantile",
        seed: int = 0,
        estimator: Estimator = "plain",
    ) -> None:
        super().__init__()
        check_variant(variant)
        self.marginal, self.variant, self.seed = marginal, variant, seed
        self.estimator = estimator

    @property
    def fitted_parameters(self) -> int:
        """Those of the marginal method."""
        return self.marginal.fitted_parameters

    def collect(self, batch: Batch) -> None:
        """Pass the batch to the marginal method."""
        self.marginal.collect(batch)

    def solve(self) -> None:
        """Solve the marginal method."""
        self.marginal.solve()
        self.solved.fill_(True)

    def _members(self, batch: Batch, template: Tensor) -> Ensemble:
        forecast: Distribution = self.marginal(batch)
        return couple(forecast, template, batch["dates"], self.variant, self.seed, self.estimator)


class ECC(Coupled):
    """Ensemble copula coupling: members in the order of the raw members at each point.

    Schefzik et al. (2013), doi:10.1214/13-STS443. Each member keeps its rank in the raw ensemble,
    and so the raw ensemble's spatial patterns. There are as many members as in the batch. `couple`
    does the same for the forecast of any model. The arguments are those of `Coupled`.
    """

    takes_new_points = True

    def forward(self, batch: Batch) -> Ensemble:
        """Return members (N, M, H, W) in the order of the raw members.

        Raises:
            ArgumentError: the batch has no members.
        """
        self._require_solved()
        return self._members(batch, members_of(self, batch))


def couple(
    forecast: Distribution,
    template: Tensor,
    dates: Tensor,
    variant: Variant = "quantile",
    seed: int = 0,
    estimator: Estimator = "plain",
) -> Ensemble:
    """Draw members from a marginal forecast, with the ranks of a template.

    Args:
        forecast: distributions of N dates.
        template: (N, M, H, W) fields whose order at each point the members take.
        dates: (N,) valid dates in seconds; results do not depend on the batch.
        variant: "quantile" or "random", see `Coupled`.
        seed: seed of random levels and of the order of equal template values.
        estimator: estimator of the members' CRPS.

    Raises:
        UnknownNameError: another variant.
        ArgumentError: a template of other than four dimensions or of other dates.
    """
    check_variant(variant)
    if template.ndim != 4 or len(template) != len(dates):
        raise ArgumentError(
            "template", f"has shape {tuple(template.shape)}, expected ({len(dates)}, M, H, W)"
        )
    size = template.shape[1]
    if variant == "quantile":
        levels = [(n + 0.5) / size for n in range(size)]
        values = forecast.quantile(levels).transpose(0, 1)
    else:
        values = _at_random_levels(forecast, size, dates, seed)
    ranked = values.sort(1).values
    return Ensemble(ranked.gather(1, ranks(template, dates, seed)), estimator)


def ranks(template: Tensor, dates: Tensor, seed: int) -> Tensor:
    """Return the rank of each member at each point, from 0; NaN ranks highest.

    Ties are broken by a random order of the members, drawn for each date and used at all points.

    Args:
        template: (N, M, H, W).
        dates: (N,) seconds.
        seed: seed of the random orders.

    Examples:
        >>> import torch
        >>> from ens10.models.statistical.coupling import ranks
        >>> template = torch.tensor([3.0, 1.0, 2.0]).reshape(1, 3, 1, 1)
        >>> ranks(template, torch.tensor([0]), seed=0).flatten().tolist()
        [2, 0, 1]
    """
    size = template.shape[1]
    orders = _random_orders(dates.to(template.device), size, seed)
    order = orders[:, :, None, None].expand_as(template)
    shuffled = template.gather(1, order).argsort(dim=1, stable=True).argsort(dim=1)
    return torch.empty_like(shuffled).scatter_(1, order, shuffled)


@torch.library.custom_op("ens10::random_orders", mutates_args=())
def _random_orders(dates: Tensor, size: int, seed: int) -> Tensor:
    """Return a random order of members for each date; one node of a compiled graph."""
    orders = _for_dates(lambda random: random.permutation(size), dates, seed, "ties")
    return orders.to(dates.device)


@_random_orders.register_fake
def _(dates: Tensor, size: int, seed: int) -> Tensor:  # noqa: ARG001
    return dates.new_empty((len(dates), size), dtype=torch.int64)


def check_variant(variant: str) -> None:
    """Refuse an unknown variant.

    Raises:
        UnknownNameError: another variant than "quantile" or "random".
    """
    if variant not in get_args(Variant):
        raise UnknownNameError("variant", variant, get_args(Variant))


def generator_of(date: int, seed: int, purpose: str) -> np.random.Generator:
    """Return a random generator that depends on date and seed only, not on the batch."""
    return np.random.default_rng([seed, date % 2**63, *purpose.encode()])


def _at_random_levels(forecast: Distribution, size: int, dates: Tensor, seed: int) -> Tensor:
    levels = _for_dates(lambda random: random.random(size), dates, seed, "levels")
    levels = levels.clamp(_LEAST_LEVEL, 1 - _LEAST_LEVEL).to(forecast.mean.device)
    return torch.stack([forecast.quantile(level)[:, n] for n, level in enumerate(levels)])


def _for_dates(
    draw: Callable[[np.random.Generator], np.ndarray], dates: Tensor, seed: int, purpose: str
) -> Tensor:
    draws = [draw(generator_of(int(date), seed, purpose)) for date in dates.tolist()]
    return torch.from_numpy(np.stack(draws))


_YEAR = 365.2425 * 86400


class SchaakeShuffle(Coupled):
    """The Schaake shuffle: members in the order of the truth on dates of the past.

    Clark et al. (2004), doi:10.1175/1525-7541(2004)005<0243:TSSAMF>2.0.CO;2. For each forecast,
    as many past dates as members are drawn among those near it in the season; the k-th member has
    at each point the rank of the k-th date's truth. A forecast never takes the order of its
    own date's truth. With fewer dates in the window than members the nearest in season are taken.

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
        ArgumentError: `members` below 1, or not below `history`.
        UnknownNameError: another variant.
    """

    may_be_nan = ("history",)

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
        self.members, self.max_history, self.window = members, history, window
        self.history: Tensor
        self.history_dates: Tensor
        self.register_buffer("history", torch.zeros(0, 0, 0))
        self.register_buffer("history_dates", torch.zeros(0, dtype=torch.int64))
        self._truth_sample: list[tuple[float, int, Tensor]] = []

    def collect(self, batch: Batch) -> None:
        """Store the truth of a random sample of dates, NaN where it has no weight."""
        super().collect(batch)
        for n, date in enumerate(batch["dates"].tolist()):
            priority = float(generator_of(date, self.seed, "history").random())
            if (
                len(self._truth_sample) == self.max_history
                and (priority, date) >= self._truth_sample[-1][:2]
            ):
                continue
            truth, weights = batch["target"][n].detach().cpu(), batch["weights"][n].cpu()
            field = torch.where(weights > 0, truth, torch.nan).to(torch.float32)
            self._truth_sample = sorted(
                [*self._truth_sample, (priority, date, field)], key=lambda entry: entry[:2]
            )
            del self._truth_sample[self.max_history :]

    def solve(self) -> None:
        """Solve the marginal method and store the history.

        Raises:
            ArgumentError: no more training dates than members.
        """
        super().solve()
        if len(self._truth_sample) <= self.members:
            self.solved.fill_(False)
            raise ArgumentError(
                "members",
                f"{self.members} need more training dates than that, there are "
                f"{len(self._truth_sample)}",
                "Use fewer members or more years",
            )
        history = sorted(self._truth_sample, key=lambda entry: entry[1])
        device = self.history.device
        self.history = torch.stack([field for _, _, field in history]).to(device)
        self.history_dates = torch.tensor([date for _, date, _ in history], device=device)
        self._truth_sample = []

    def forward(self, batch: Batch) -> Ensemble:
        """Return members (N, M, H, W) in the order of the truth on past dates."""
        self._require_solved()
        require_same_grid(self, self.history, batch)
        positions = [self.dates_for(date) for date in batch["dates"].tolist()]
        return self._members(batch, self.history[torch.from_numpy(np.stack(positions))])

    def dates_for(self, date: int) -> npt.NDArray[np.int64]:
        """Return the M past dates, as positions (M,), whose ranks order the members of a date."""
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
    distance = np.abs(turns - np.round(turns)) * 365.2425
    distance[past == date] = np.inf
    near = np.flatnonzero(distance <= window)
    if len(near) < members:
        near = np.argsort(distance, kind="stable")[:members]
    random = generator_of(date, seed, "dates")
    return np.asarray(random.choice(near, members, replace=False), np.int64)
