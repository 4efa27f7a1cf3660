"""What two processes send in a training, and its skill: bf16, PowerSGD and post-local SGD.

    python -m ens10.experiments.studies.communication WORK --out experiments/results/communication

A U-Net is trained on each seed's displaced world by Lightning's DDP with a communication hook of
torch. The bytes that it hands to `all_reduce` are counted after the first epochs, in which
gradients are averaged as they are. The time on a slow link is computed from them.
"""

import json
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import train_briefly
from ens10.experiments.studies.small_unet import (
    WORLD,
    crps_on_test_dates,
    data_of,
    run_seeds,
    unet_of,
)
from ens10.usage import reports_errors

PROCESSES, EPOCHS, BATCH, RATE = 2, 8, 2, 0.003
START, PERIOD = 23, 8  # steps before a hook begins; an average is taken in the last step of all
COUNTED_FROM = 2  # epoch, when all hooks have begun
BANDWIDTH, LATENCY = 12.5e6, 0.001  # of the link: 100 Mbit/s, and seconds for each message


@dataclass(frozen=True)
class Way:
    """A communication hook of torch.

    Attributes:
        label: in tables.
        hook: of DDP.
        state: makes its state.
        period: steps between averages of the weights; None without these.
    """

    label: str
    hook: Callable[..., Any]
    state: Callable[[], Any] = lambda: None
    period: int | None = None


def bf16_on_gloo(
    group: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Call torch's hook, whose own name DDP refuses without a GPU."""
    return bf16_compress_hook(group, bucket)


WAYS = {
    "float32": Way("gradients, float32", allreduce_hook),
    "bf16": Way("gradients, bf16", bf16_on_gloo),
    "powersgd": Way("PowerSGD, rank 1", powerSGD_hook, lambda: PowerSGDState(None, 1, START)),
    "local": Way(
        f"weights every {PERIOD} steps (post-local SGD)",
        post_localSGD_hook,
        lambda: PostLocalSGDState(None, None, START, False),  # type: ignore[no-untyped-call]
        PERIOD,
    ),
}
LABELS = {name: way.label for name, way in WAYS.items()}
COLUMNS = {
    "bytes": "bytes a step",
    "calls": "messages a step",
    "link2": "2 processes: link (ms a step)",
    "link4": "4 processes",
    "seconds": "processor time (s)",
}


class HookedDDP(DDPStrategy):
    """Lightning's DDP, which registers hooks on GPUs alone."""

    def configure_ddp(self) -> None:
        """Wrap the model, and register the hook."""
        super().configure_ddp()
        assert isinstance(self.model, DistributedDataParallel)
        assert self._ddp_comm_hook
        self.model.register_comm_hook(self._ddp_comm_state, self._ddp_comm_hook)


class CountReduced(pl.Callback):
    """Count what a process hands to `all_reduce` in training steps.

    Args:
        path: of the file that the first process writes.
        first: epoch from which on it is counted.

    Attributes:
        bytes: of all messages.
        calls: number of messages.
    """

    def __init__(self, path: Path, first: int = COUNTED_FROM) -> None:
        self.path, self.first = path, first
        self.bytes = self.calls = self.steps = 0
        self._all_reduce = dist.all_reduce

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Count from here on."""
        if trainer.current_epoch >= self.first:
            self.steps += 1
            dist.all_reduce = self.count

    def on_train_batch_end(self, *_: Any) -> None:
        """Count no more."""
        dist.all_reduce = self._all_reduce

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Write the means of a step."""
        if trainer.is_global_zero:
            means = {"bytes": self.bytes / self.steps, "calls": self.calls / self.steps}
            self.path.write_text(json.dumps(means))

    def count(self, tensor: Any, *args: Any, **options: Any) -> Any:
        """Count a message, and send it."""
        self.bytes, self.calls = self.bytes + tensor.nbytes, self.calls + 1
        return self._all_reduce(tensor, *args, **options)


def milliseconds(traffic: dict[str, float], processes: int) -> float:
    """Return the time of a step's ring all-reduces on the slow link, in which nothing overlaps."""
    sent = 2 * (processes - 1) / processes * traffic["bytes"] / BANDWIDTH
    return 1000 * (sent + 2 * (processes - 1) * traffic["calls"] * LATENCY)


class WayCell(JsonCell):
    """A training with one seed, whose processes communicate in one of `WAYS`."""

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        training = [PROCESSES, EPOCHS, BATCH, RATE, START, PERIOD, BANDWIDTH, LATENCY]
        about = {"world": WORLD, "training": training, "seed": self.seed}
        return key_of({**about, "variant": self.variant}, "", ("ens10.loader", "ens10.models"))

    def result(self) -> Result:
        """Train on several processes, count what they send, and score."""
        data, way = data_of(self.scratch, self.seed, BATCH), WAYS[self.variant]
        model, path = unet_of(data, self.seed, EPOCHS, RATE), self.scratch / "traffic.json"
        strategy = HookedDDP(
            ddp_comm_hook=way.hook,
            ddp_comm_state=way.state(),
            model_averaging_period=way.period,
            process_group_backend="gloo",
            start_method="fork",
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        train_briefly(model, data, EPOCHS, CountReduced(path), strategy=strategy, devices=PROCESSES)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        traffic = json.loads(path.read_text())
        links = {f"link{n}": round(milliseconds(traffic, n), 2) for n in (2, 4)}
        facts = {"crps": crps_on_test_dates(model, data), "seconds": round(seconds, 1)}
        return {"variant": self.variant, "seed": self.seed, **facts, **traffic, **links}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    return run_seeds("communication", WayCell, LABELS, COLUMNS, arguments)


if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import communication

    sys.exit(communication.main())
