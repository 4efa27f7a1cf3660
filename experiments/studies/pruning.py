"""Skill of a U-Net against the weights that are kept, with fine-tuning after the pruning.

    python -m ens10.experiments.studies.pruning WORK --out experiments/results/pruning

Each seed has a displaced world and one trained network. Its convolutions are pruned by magnitude
with `torch.nn.utils.prune`, over all of them together or two of each four weights (2:4), and the
other weights are trained on, as long as those of the network that keeps all.
"""

import sys
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from ens10.durable import whole_path
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runs.claims import make_once
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import BestWeights, train_briefly
from ens10.experiments.studies.small_unet import (
    WORLD,
    crps_on_test_dates,
    data_of,
    run_seeds,
    unet_of,
)
from ens10.loader.datamodule import EnsembleDataModule
from ens10.usage import reports_errors

EPOCHS, FINE_EPOCHS, BATCH = 12, 4, 4
RATE, FINE_RATE = 0.003, 0.001
ALL, PATTERN = "all", "2of4"
KEPT = {ALL: 1.0, "50": 0.5, PATTERN: 0.5, "25": 0.25, "10": 0.1, "5": 0.05}
LABELS = {ALL: "all", "50": "50 %", PATTERN: "2 of each 4", "25": "25 %", "10": "10 %", "5": "5 %"}
COLUMNS = {
    "kept": "share of convolutions",
    "pruned": "CRPS when pruned (K)",
    "seconds": "processor time (s)",
}


class TwoOfFour(prune.BasePruningMethod):
    """Keep the two largest weights of each four neighbouring input channels (2:4)."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask of weights (out, in, ...) whose number of input channels is 4 n."""
        channels_last = t.detach().movedim(1, -1)
        sizes = channels_last.abs().reshape(-1, 4)
        mask = torch.zeros_like(sizes).scatter(1, sizes.topk(2).indices, 1)
        return default_mask * mask.reshape(channels_last.shape).movedim(-1, 1)


def prunable(network: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the weights of the convolutions of 4 n input channels: all but the first."""
    convolutions = (m for m in network.modules() if isinstance(m, nn.Conv2d))
    return [(m, "weight") for m in convolutions if m.in_channels % 4 == 0]


def prune_network(network: nn.Module, variant: str) -> None:
    """Mask the weights of a network, as one of `KEPT` says."""
    weights = prunable(network)
    if variant == PATTERN:
        for module, name in weights:
            TwoOfFour.apply(module, name)  # type: ignore[no-untyped-call]
    else:
        amount = 1 - KEPT[variant]
        prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=amount)


class PruningCell(JsonCell):
    """The network of a seed, pruned as a variant of `KEPT` says and trained on."""

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        training = [EPOCHS, FINE_EPOCHS, BATCH, RATE, FINE_RATE, KEPT[self.variant]]
        about = {"world": WORLD, "training": training, "seed": self.seed}
        return key_of({**about, "variant": self.variant}, "", ("ens10.loader", "ens10.models"))

    def result(self) -> Result:
        """Prune the trained network, train it on, and score it before and after."""
        data = data_of(self.scratch, self.seed, BATCH)
        model = unet_of(data, self.seed, FINE_EPOCHS, FINE_RATE)
        model.load_state_dict(self._trained(data))
        prune_network(model.network, self.variant)
        pruned, start, best = crps_on_test_dates(model, data), time.process_time(), BestWeights()
        train_briefly(model, data, FINE_EPOCHS, best)
        seconds = time.process_time() - start
        model.load_state_dict(best.weights["val"])
        weights = torch.cat([getattr(m, name).flatten() for m, name in prunable(model.network)])
        nonzero = float((weights != 0).float().mean())
        facts = {
            "crps": crps_on_test_dates(model, data),
            "pruned": pruned,
            "seconds": round(seconds, 1),
        }
        return {"variant": self.variant, "seed": self.seed, "kept": round(nonzero, 4), **facts}

    def _trained(self, data: EnsembleDataModule) -> Mapping[str, Tensor]:
        """Return the weights of the seed's network, which is trained if they are missing."""
        path = self.scratch / f"trained-{EPOCHS}.pt"

        def train() -> None:
            model, best = unet_of(data, self.seed, EPOCHS, RATE), BestWeights()
            train_briefly(model, data, EPOCHS, best)
            with whole_path(path) as partial_path:
                torch.save(best.weights["val"], partial_path)

        make_once(path, train)
        weights: Mapping[str, Tensor] = torch.load(path)
        return weights


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    return run_seeds("pruning", PruningCell, LABELS, COLUMNS, arguments)


if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import pruning

    sys.exit(pruning.main())
