"""A head whose members are draws of a Gaussian random field with learned correlations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Ensemble, Normal
from ens10.models.domain import current
from ens10.models.heads import HeadOnMethod, checked_floor, raw_members
from ens10.models.statistical.base import StatisticalMethod
from ens10.models.statistical.coupling import Variant, check_variant, generator_of, ranks

RESULT_VERSION = 1  # raise it when results change
EARTH_RADIUS_KM = 6371.0
_LEAST_COSINE = 1e-6  # of latitude; at the poles only the zonal mean is left of a smooth field


class SmoothNoise(nn.Module):
    """Gaussian smoothing of white noise on the sphere, to fields of variance 1 at every point.

    A field of length l has between points at distance d the correlation exp(-d^2 / (2 l^2)), to the
    accuracy of a separable kernel: rows are smoothed by latitude and then by longitude, with a
    kernel as wide in kilometres at every latitude. A length of 0 leaves the noise as it is. Rows
    are evenly spaced from pole to pole, columns around the globe.

    Args:
        lengths: correlation lengths, km, 0 or more.
    """

    splittable = "its noise is drawn for the whole grid"

    def __init__(self, lengths: Sequence[float]) -> None:
        super().__init__()
        self.lengths = tuple(float(length) for length in lengths)
        self._kernels: dict[tuple[int, int, float], tuple[Tensor, Tensor]] = {}

    def forward(self, white: Tensor) -> Tensor:
        """Smooth white noise (..., lengths, K, H, W) by each length."""
        fields = [
            white[..., n, :, :, :] if not length else self._smooth(white[..., n, :, :, :], length)
            for n, length in enumerate(self.lengths)
        ]
        return torch.stack(fields, -4)

    def _smooth(self, white: Tensor, length: float) -> Tensor:
        rows, columns = white.shape[-2:]
        key = (rows, columns, length)
        if key not in self._kernels:
            self._kernels[key] = _kernels(rows, columns, length)
        by_row, gains = (kernel.to(white) for kernel in self._kernels[key])
        waves = torch.fft.rfft(by_row @ white) * gains
        smooth: Tensor = torch.fft.irfft(waves, n=columns)
        return smooth


def _kernels(rows: int, columns: int, length: float) -> tuple[Tensor, Tensor]:
    """Return the weights of rows, (H, H), and the gains of zonal waves, (H, W // 2 + 1)."""
    latitude = np.linspace(np.pi / 2, -np.pi / 2, rows)
    width = length / np.sqrt(2) / EARTH_RADIUS_KM  # of the kernel: its square convolved with itself
    by_row = np.exp(-0.5 * ((latitude[:, None] - latitude) / width) ** 2)
    by_row /= np.sqrt((by_row**2).sum(1, keepdims=True))
    wave = np.arange(columns // 2 + 1)
    cosine = np.cos(latitude).clip(min=_LEAST_COSINE)[:, None]
    gains = np.exp(-0.5 * (wave * width / cosine) ** 2)
    count = np.where((wave == 0) | (2 * wave == columns), 1, 2)
    gains /= np.sqrt((count * gains**2).sum(1, keepdims=True) / columns)
    return torch.from_numpy(by_row).float(), torch.from_numpy(gains).float()


@dataclass(eq=False)
class FieldDraws(Ensemble):
    """Members that are drawn from distributions known at each point.

    Args:
        members: (N, M, H, W), target units.
        margins: their distribution at each point, (N, H, W). Its CRPS is that of the draws in the
            limit of many members, without the noise of few: `CRPSLoss` trains on it, losses of
            members on the draws. Stores of predictions contain the members alone.
    """

    margins: Any = None

    def crps(self, y: Any) -> Any:
        """Return the CRPS of the margins."""
        return self.margins.crps(y)


class RandomFieldHead(HeadOnMethod):
    """Members as draws of a Gaussian random field whose correlation the network sets at each point.

    Member m at point x is mu + sigma e_m, with

        e_m = sum_k a_k(x) g_km(x) / sqrt(sum_k a_k(x)^2),

    where g_km are independent fields of variance 1: smooth noise of several correlation lengths
    (`SmoothNoise`), and, with `raw_pattern`, a random combination of the raw members' deviations
    from their mean, sum_j w_mj (x_j - mean) / sqrt(sum_j (x_j - mean)^2) with standard normal w_mj.
    The margin at each point is exactly normal with mu and sigma, which are a residual on the raw
    ensemble or on a statistical method, as of `ResidualNormalHead` and `MethodHead`. The loadings
    a_k, of either sign, are the network's outputs plus one learned number each. Neighbours with
    equal loadings have the correlation of the noise; where loadings change, the correlation falls.

    Members are independent draws, and any number of them comes from one pass of the network. In
    training the noise is new at each step. Otherwise it depends on the seed, the valid date and the
    member's number alone, so that forecasts can be repeated, do not depend on the batch, and of
    more members the first are the same.

    Args:
        lengths: correlation lengths of the noise, km; 0 is white noise.
        fields: number of independent fields of each length.
        raw_pattern: whether deviations of the raw members are used; needs `data.members: true`.
        members: number of members outside training.
        training_members: number of members in training, for losses of members.
        variant: "random": members are draws. "quantile": at each point the draws are replaced by
            the quantiles (k - 1/2) / M of the margin in their order, which has a lower plain CRPS
            (Brocker 2012, doi:10.1002/qj.1891); training takes draws.
        seed: of the noise outside training.
        floor: smallest reference spread, in units of the target, e.g. 0.001 K.
        method: statistical method with normal forecasts, such as SeasonalEMOS, or None for the raw
            ensemble.

    Examples:
        >>> import torch
        >>> from ens10.models import RandomFieldHead
        >>> head = RandomFieldHead(lengths=[0, 1000], raw_pattern=False, members=50).eval()
        >>> raw = {"raw_mean": torch.zeros(1, 8, 16), "raw_std": torch.ones(1, 8, 16)}
        >>> outputs = torch.zeros(1, head.out_channels, 8, 16)
        >>> head(outputs, {**raw, "dates": torch.zeros(1, dtype=torch.int64)}).members.shape
        torch.Size([1, 50, 8, 16])

    Raises:
        ArgumentError: no length or a negative one, numbers of fields or members below 1, a floor
            that is not positive, or a method with a sliding window.
        UnknownNameError: another variant.
    """

    splittable = "its noise is drawn for the whole grid"

    max_log_scale = 7.0

    def __init__(
        self,
        lengths: Sequence[float] = (0.0, 500.0, 1000.0, 2000.0),
        fields: int = 2,
        raw_pattern: bool = True,
        members: int = 10,
        training_members: int = 8,
        variant: Variant = "random",
        seed: int = 0,
        floor: float = 1e-3,
        method: StatisticalMethod | None = None,
    ) -> None:
        super().__init__(method)
        check_variant(variant)
        if not lengths or not min(lengths) >= 0:
            raise ArgumentError("lengths", f"{list(lengths)}", "Use lengths of 0 km or more")
        for name, number in (
            ("fields", fields), ("members", members), ("training_members", training_members),
        ):  # fmt: skip
            if number < 1:
                raise ArgumentError(name, f"{number} is less than 1")
        self.noise, self.fields, self.raw_pattern = SmoothNoise(lengths), fields, raw_pattern
        self.members, self.training_members = members, training_members
        self.variant, self.seed = variant, seed
        self.floor = checked_floor(floor)
        self.loadings = nn.Parameter(self._initial_loadings(len(lengths)))
        self.out_channels = 2 + len(self.loadings)

    def _initial_loadings(self, lengths: int) -> Tensor:
        """Return the loadings before training, 1 for one noise field of each length, else 0.1.

        With loadings of 0 the sign of a field would not matter, and it would have no gradient.
        """
        start = torch.full((lengths, self.fields), 0.1)
        start[:, 0] = 1.0
        raw = torch.ones(int(self.raw_pattern))
        return torch.cat([start.flatten(), raw])

    def forward(self, outputs: Tensor, batch: Batch) -> Ensemble:
        """Return members (N, M, H, W) from outputs (N, out_channels, H, W).

        Raises:
            ArgumentError: the method was not solved, the batch lacks the raw members that
                `raw_pattern` takes, or the fields are parts of the grid.
        """
        _require_whole_grid(batch)
        start = self._reference(batch)
        outputs = outputs.to(start.mean.dtype)
        mu, sigma = start.location_and_scale(outputs[:, :2], self.max_log_scale)
        draws = self._draws(outputs[:, 2:] + self.loadings[:, None, None], batch)
        # filled before the product, whose gradient would be NaN
        centre, scale = (part.masked_fill(start.missing, 1).unsqueeze(1) for part in (mu, sigma))
        members = start.mask_missing(centre + scale * draws)
        return FieldDraws(members, margins=Normal(mu, sigma, positive=True))

    def _draws(self, loadings: Tensor, batch: Batch) -> Tensor:
        """Return e (N, M, H, W) of loadings (N, K, H, W)."""
        white, weights = self._noise_and_weights(loadings, batch)
        fields = self.noise(white).flatten(2, 3)
        smooth = loadings[:, : fields.shape[2]]
        draws: Tensor = (smooth.unsqueeze(1) * fields).sum(2)
        variance = smooth.square().sum(1)
        if self.raw_pattern:
            pattern = raw_pattern(batch)
            raw = loadings[:, -1]
            draws = draws + raw.unsqueeze(1) * torch.einsum("nmj,njhw->nmhw", weights, pattern)
            variance = variance + (raw * pattern.square().sum(1).sqrt()).square()
        draws = draws * variance.clamp(min=1e-12).rsqrt().unsqueeze(1)
        if self.training or self.variant == "random":
            return draws
        return _to_quantiles(draws, batch["dates"], self.seed)

    def _noise_and_weights(self, like: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return white noise (N, M, lengths, fields, H, W) and weights (N, M, J) of raw members."""
        members = self.training_members if self.training else self.members
        shape = (len(self.noise.lengths), self.fields, *like.shape[-2:])
        count = batch["members"].shape[1] if self.raw_pattern and "members" in batch else 0
        if self.training:
            size = len(like), members
            return like.new_empty(*size, *shape).normal_(), like.new_empty(*size, count).normal_()
        white, weights = [], []
        for date in batch["dates"].tolist():
            generators = [generator_of(date, self.seed, name) for name in ("fields", "weights")]
            white.append(generators[0].standard_normal((members, *shape), np.float32))
            weights.append(generators[1].standard_normal((members, count), np.float32))
        return (torch.from_numpy(np.stack(arrays)).to(like) for arrays in (white, weights))  # type: ignore[return-value]


def raw_pattern(batch: Batch) -> Tensor:
    """Return deviations of the raw members (N, J, H, W) with a sum of squares of 1.

    They are 0 where a member is missing or all are equal.

    Raises:
        ArgumentError: the batch has no members.
    """
    members = raw_members(batch)
    deviations = members - members.mean(1, keepdim=True)
    square = deviations.square().sum(1, keepdim=True)
    valid = square > 0  # false for NaN
    norm = torch.where(valid, square, 1).sqrt()
    pattern: Tensor = torch.where(valid, deviations, 0) / norm
    return pattern


def _to_quantiles(draws: Tensor, dates: Tensor, seed: int) -> Tensor:
    """Replace draws (N, M, H, W) by standard normal quantiles (k - 1/2) / M in their order."""
    size = draws.shape[1]
    levels = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    quantiles: Tensor = torch.special.ndtri(levels).to(draws)
    return quantiles[ranks(draws, dates, seed)]


def _require_whole_grid(batch: Batch) -> None:
    """Refuse parts of the grid and stations: the noise is smoothed over the whole globe."""
    if current().is_split or "rows" in batch or batch["raw_mean"].shape[-2] < 2:
        raise ArgumentError(
            "head",
            "RandomFieldHead needs the whole grid, the batch has a part of it or stations",
            "Set data.kind to fields, and split no samples between processes",
        )
