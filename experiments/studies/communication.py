"""What processes send in a training, and its skill: bf16, PowerSGD, post-local SGD and Lion.

    python -m ens10.experiments.studies.communication WORK --out experiments/results/communication

A U-Net is trained on each seed's displaced world by Lightning's DDP on two and on four processes,
with a communication hook of torch or an optimiser that votes. The bytes that a process hands to
`all_reduce` and `all_gather` are counted after the first epochs, in which gradients are averaged
as they are. The time on a slow link is computed from them.
"""

import json
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
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
    ADAMW,
    WORLD,
    crps_on_test_dates,
    data_of,
    run_seeds,
    unet_of,
)
from ens10.experiments.studies.voting_lion import VotingLion
from ens10.usage import reports_errors

PROCESSES, EPOCHS, BATCH, RATE = (2, 4), 8, 4, 0.003  # BATCH: dates of all processes together
START, PERIOD = 23, 8  # steps before a hook begins; an average is taken in the last step of all
COUNTED_FROM = 2  # epoch, when all hooks have begun
LION, LION_RATE = partial(VotingLion, weight_decay=0.005), RATE / 20  # tried: a 2nd, 5th, 10th
BANDWIDTH, LATENCY = 12.5e6, 0.001  # of the link: 100 Mbit/s, and seconds for each message


@dataclass(frozen=True)
class Way:
    """A way to communicate in a training.

    Attributes:
        label: in tables.
        hook: of DDP.
        state: makes its state.
        period: steps between averages of the weights; None without these.
        optimizer: makes it, without its learning rate.
        rate: first learning rate.
    """

    label: str
    hook: Callable[..., Any]
    state: Callable[[], Any] = lambda: None
    period: int | None = None
    optimizer: Callable[..., torch.optim.Optimizer] = ADAMW
    rate: float = RATE


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
    "lion32": Way(
        "gradients, float32, Lion",
        allreduce_hook,
        optimizer=partial(LION, votes=False),
        rate=LION_RATE,
    ),
    "lion": Way("a bit for each weight, Lion", noop_hook, optimizer=LION, rate=LION_RATE),
}
LABELS = {f"{way}-{n}": f"{n} processes: {WAYS[way].label}" for n in PROCESSES for way in WAYS}
COLUMNS = {
    "bytes": "bytes a step",
    "calls": "messages a step",
    "link": "link (ms a step)",
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


class CountSent(pl.Callback):
    """Count what a process hands to `all_reduce` and `all_gather` in training steps.

    Args:
        path: of the file that the first process writes.
        first: epoch from which on it is counted.

    Attributes:
        bytes: of all messages, by function.
        calls: number of messages, by function.
    """

    def __init__(self, path: Path, first: int = COUNTED_FROM) -> None:
        self.path, self.first, self.steps = path, first, 0
        self._functions: dict[str, Any] = {"reduce": dist.all_reduce, "gather": dist.all_gather}
        self.bytes, self.calls = (
            dict.fromkeys(self._functions, 0),
            dict.fromkeys(self._functions, 0),
        )

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Count from here on."""
        if trainer.current_epoch >= self.first:
            self.steps += 1
            self.begin()

    def on_train_batch_end(self, *_: Any) -> None:
        """Count no more."""
        self.end()

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Write the means of a step."""
        if trainer.is_global_zero:
            means = {
                kind: {"bytes": self.bytes[kind] / self.steps, "calls": calls / self.steps}
                for kind, calls in self.calls.items()
            }
            self.path.write_text(json.dumps(means))

    def begin(self) -> None:
        """Put counting functions in place of those of torch."""
        vars(dist).update(all_reduce=self._reduce, all_gather=self._gather)

    def end(self) -> None:
        """Put those of torch back."""
        vars(dist).update({f"all_{kind}": call for kind, call in self._functions.items()})

    def _reduce(self, tensor: Any, *args: Any, **options: Any) -> Any:
        return self._send("reduce", tensor, tensor, *args, **options)

    def _gather(self, tensors: Any, tensor: Any, *args: Any, **options: Any) -> Any:
        return self._send("gather", tensor, tensors, tensor, *args, **options)

    def _send(self, kind: str, tensor: Any, *args: Any, **options: Any) -> Any:
        self.bytes[kind] += tensor.nbytes
        self.calls[kind] += 1
        return self._functions[kind](*args, **options)


def milliseconds(means: dict[str, dict[str, float]], processes: int) -> float:
    """Return the time of a step's messages around a ring of slow links, in which nothing overlaps.

    Args:
        means: bytes and calls of a step, of "reduce" and "gather".
        processes: number of them.
    """
    others, (reduce, gather) = processes - 1, (means["reduce"], means["gather"])
    sent = others * (2 / processes * reduce["bytes"] + gather["bytes"])
    return 1000 * (sent / BANDWIDTH + others * (2 * reduce["calls"] + gather["calls"]) * LATENCY)


class WayCell(JsonCell):
    """A training with one seed, whose processes communicate in one of `WAYS`."""

    @property
    def processes(self) -> int:
        """Their number."""
        return int(self.variant[-1])

    @property
    def way(self) -> Way:
        """How they communicate."""
        return WAYS[self.variant[:-2]]

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        settings = [self.processes, EPOCHS, BATCH, self.way.rate, START, PERIOD]
        training = [*settings, BANDWIDTH, LATENCY]
        about = {"world": WORLD, "training": training, "seed": self.seed}
        return key_of({**about, "variant": self.variant}, "", ("ens10.loader", "ens10.models"))

    def result(self) -> Result:
        """Train on several processes, count what they send, and score."""
        data, way = data_of(self.scratch, self.seed, BATCH // self.processes), self.way
        model = unet_of(data, self.seed, EPOCHS, way.rate, optimizer=way.optimizer)
        path = self.scratch / "sent.json"
        strategy = HookedDDP(
            ddp_comm_hook=way.hook,
            ddp_comm_state=way.state(),
            model_averaging_period=way.period,
            process_group_backend="gloo",
            start_method="fork",
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        train_briefly(
            model, data, EPOCHS, CountSent(path), strategy=strategy, devices=self.processes
        )
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        means = json.loads(path.read_text())
        return {
            "variant": self.variant,
            "seed": self.seed,
            "crps": crps_on_test_dates(model, data),
            "seconds": round(seconds, 1),
            "bytes": sum(of_kind["bytes"] for of_kind in means.values()),
            "calls": sum(of_kind["calls"] for of_kind in means.values()),
            "link": round(milliseconds(means, self.processes), 2),
        }


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    return run_seeds("communication", WayCell, LABELS, COLUMNS, arguments)


if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import communication

    sys.exit(communication.main())
