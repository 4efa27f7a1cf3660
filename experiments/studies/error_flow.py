"""Members from flow matching on the errors of a run's forecasts: training and draws.

The flow is trained on the errors of the run's own training dates, in units of its deviations. The
weights of the smallest loss of the validation dates are kept, with the same noise in each epoch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.durable import whole_file
from ens10.errors import ArgumentError
from ens10.experiments.forecasts.load import TrainedModel, load_model
from ens10.experiments.runner.key import digest_of
from ens10.loader.datamodule import EnsembleDataModule
from ens10.metrics.distributions import Normal
from ens10.models.flow_matching import ErrorFlow, white_noise
from ens10.models.networks import LocationUNet
from ens10.models.statistical.coupling import couple
from ens10.protocol import Split
from ens10.untrusted import read_mapping

EPOCHS, BATCH, RATE = 60, 8, 2e-3
VERSION = 1  # raise it when the flow's training changes
_WIDTHS = (16, 32, 48)
_VALIDATION = 8  # draws of noise and time for each date


class _Dates(NamedTuple):
    """Dates of a split: features, standardised errors, weights, and mean and deviation."""

    features: Tensor
    errors: Tensor
    weights: Tensor
    mean: Tensor
    std: Tensor
    dates: Tensor


class FlowMembers:
    """The trained flow of a run, and its members of the test dates.

    Args:
        run: folder of a run whose forecasts are normal distributions.
        folder: of the flow's weights, in a file named by all that they depend on; the flow is
            trained if it is missing.
        seed: of the training and the draws.
        epochs: of the training.
    """

    def __init__(self, run: Path, folder: Path, seed: int, epochs: int = EPOCHS) -> None:
        self.seed = seed
        options = read_mapping(run / "config.yaml")["data"]
        self._model = cast("TrainedModel", load_model(run))
        self._data = EnsembleDataModule(**options)
        self._test = self._dates("test")
        channels, grid = self._test.features.shape[1], self._test.features.shape[-2:]
        torch.manual_seed(seed)
        self.flow = ErrorFlow(
            LocationUNet(
                channels + 2, grid, 1, _WIDTHS, embedding=8, embedding_levels=4, embedding_gain=2.0
            )
        )
        depends = {"run": self._model.checksum, "seed": seed, "epochs": epochs, "version": VERSION}
        kept = folder / f"flow-{digest_of(depends)}.pt"
        if not kept.exists():
            state = self._trained(epochs)
            with whole_file(kept) as file:
                torch.save(state, file)
        self.flow.load_state_dict(torch.load(kept, weights_only=True))
        self.flow.eval().requires_grad_(False)

    def _dates(self, split: Split) -> _Dates:
        """Return all dates of a split with truth, in memory."""
        parts = []
        for batch in self._data.batches(split, BATCH):
            tensors = self._model.on_device(batch)
            forecast = cast("Normal", self._model.distribution(tensors))
            mean, std = forecast.mu.float(), forecast.sigma.float()
            errors = (tensors["target"] - mean) / std
            errors = torch.where(tensors["weights"] > 0, errors, 0)
            one = (tensors["features"], errors, tensors["weights"], mean, std, tensors["dates"])
            parts.append([part.clone() for part in one])
        dates = _Dates(*(torch.cat(part) for part in zip(*parts, strict=True)))
        has_truth = dates.weights.flatten(1).any(1)
        return _Dates(*(part[has_truth] for part in dates)) if split != "test" else dates

    def _trained(self, epochs: int) -> dict[str, Any]:
        """Return the weights of the epoch whose validation loss is the smallest."""
        train, val = self._dates("train"), self._dates("val")
        random = torch.Generator().manual_seed(self.seed)
        shape = (_VALIDATION, *val.errors.shape)
        noise = torch.randn(shape, generator=random)
        times = (torch.arange(_VALIDATION) + 0.5) / _VALIDATION
        count = -(-len(train.dates) // BATCH)
        optimizer = torch.optim.AdamW(self.flow.parameters(), lr=RATE, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * count)
        best, state = np.inf, {}
        for _ in range(epochs):
            self.flow.train()
            for part in _parts(torch.randperm(len(train.dates), generator=random)):
                optimizer.zero_grad()
                errors = train.errors[part]
                white = torch.randn(errors.shape, generator=random)
                time = torch.rand(len(part), generator=random)
                loss = self.flow.loss(
                    errors, train.features[part], train.weights[part], white, time
                )
                penalty = self.flow.network.penalty()
                torch.autograd.backward(loss if penalty is None else loss + penalty)
                optimizer.step()
                schedule.step()
            loss_of_val = self._loss(val, noise, times)
            if loss_of_val < best:
                best = loss_of_val
                state = {name: value.clone() for name, value in self.flow.state_dict().items()}
        if not state:
            raise ArgumentError("run", "the validation loss of its flow is NaN in each epoch")
        return state

    @torch.inference_mode()
    def _loss(self, dates: _Dates, noise: Tensor, times: Tensor) -> float:
        """Return the mean loss of dates, at each of the times with noise of its own."""
        self.flow.eval()
        losses = []
        for part in _parts(torch.arange(len(dates.dates))):
            for white, time in zip(noise, times, strict=True):
                loss = self.flow.loss(
                    dates.errors[part], dates.features[part], dates.weights[part], white[part],
                    time.expand(len(part)),
                )  # fmt: skip
                losses.append(float(loss) * len(part))
        return sum(losses) / len(dates.dates) / len(times)

    @torch.inference_mode()
    def members(self, sizes: Sequence[int]) -> dict[str, npt.NDArray[np.float32]]:
        """Return members (date, member, latitude, longitude) of the test dates.

        Args:
            sizes: numbers of members; the last is also drawn without quantiles.

        Returns:
            By name: "N quantiles", quantiles of the run's distributions in the order of the draws;
            "N draws", mean + deviation x draw.
        """
        test, grid = self._test, self._test.errors.shape[-2:]
        lists: dict[str, list[Tensor]] = {}
        for features, mean, std, date in zip(
            test.features, test.mean, test.std, test.dates, strict=True
        ):
            noise = white_noise(int(date), max(sizes), grid, self.seed)
            draws = self.flow.draw(features, noise)
            forecast = Normal(mean[None], std[None])
            for size in sizes:
                coupled = couple(forecast, draws[None, :size], date[None]).members
                lists.setdefault(f"{size} quantiles", []).append(coupled[0])
            lists.setdefault(f"{sizes[-1]} draws", []).append(mean + std * draws[: sizes[-1]])
        return {name: torch.stack(fields).numpy() for name, fields in lists.items()}


def _parts(indices: Tensor) -> list[Tensor]:
    """Return the indices of batches."""
    return [indices[n : n + BATCH] for n in range(0, len(indices), BATCH)]
