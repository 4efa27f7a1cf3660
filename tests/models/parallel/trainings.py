"""Small trainings under Lightning, run by each rank of the pool."""

import os
from functools import partial

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from ranks import TIMEOUT

from ens10.loader import EnsembleDataModule
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import UNet
from ens10.models.parallel import SpatialStrategy


class Losses(pl.Callback):
    """What was logged, by epoch."""

    def __init__(self):
        self.logged = []

    def on_train_epoch_end(self, trainer, _):
        self.logged.append({k: float(v) for k, v in trainer.callback_metrics.items()})

    on_test_end = on_train_epoch_end


def adam(parameters):
    """Return Adam with an epsilon above the gradients' rounding errors.

    The step is lr m / (sqrt(v) + eps), and sqrt(v) is a norm of the gradients: an error of a
    gradient changes a weight by at most a few lr / eps = 100 times as much. With the usual 1e-8 a
    gradient that is zero but for rounding, such as a bias's before a batch normalisation, moves
    its weight by up to lr, in a direction that depends on the processor.
    """
    return torch.optim.Adam(parameters, lr=1e-2, eps=1e-4)


def unet(channels=23, **options):
    """A model of the paper's U-Net, the same on each rank."""
    torch.manual_seed(0)
    network = UNet(channels, **options)
    return PostProcessor(network, ResidualNormalHead(), optimizer=adam)


def in_double(make):
    """What is made in float64, as the ranks do."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return make()
    finally:
        torch.set_default_dtype(before)


def pretend_torchrun():
    """What torchrun tells a process, so that Lightning starts none itself."""
    import torch.distributed as dist

    rank, world = (dist.get_rank(), dist.get_world_size())
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        GROUP_RANK="0", TORCHELASTIC_RUN_ID="tests", MASTER_ADDR="localhost", MASTER_PORT="0",
    )  # fmt: skip
    return world


def trainer_of(world, strategy=None, **options):
    """A trainer of this process; serial without a strategy."""
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "precision": "64-true",
        "num_sanity_val_steps": 0,
    }
    if strategy is not None:
        quiet |= {"strategy": strategy, "devices": world, "plugins": [TorchElasticEnvironment()]}
    else:
        quiet |= {"devices": 1}
    return pl.Trainer(**(quiet | options))


def split_of(*parts, **options):
    """The strategy of a split training; it waits long, since the machine may be busy."""
    return SpatialStrategy(*parts, timeout=TIMEOUT.seconds, **options)


def data_of(store, **options):
    return EnsembleDataModule(str(store), **({"batch_size": 2} | options))


def train(
    store,
    lat=None,
    lon=1,
    make=unet,
    data=None,
    checkpoint=None,
    save=None,
    parameters="replicated",
    **options,
):
    """Weights, losses and test scores after a training; serial if lat is None."""
    strategy = None if lat is None else split_of(lat, lon, parameters=parameters)
    world = 1 if lat is None else pretend_torchrun()
    losses, module = Losses(), in_double(make)
    given = {"max_epochs": 1, "limit_train_batches": 3, "gradient_clip_val": 0.05} | options
    trainer = trainer_of(world, strategy, callbacks=[losses], **given)
    datamodule = data_of(store, **(data or {}))
    trainer.fit(module, datamodule=datamodule, ckpt_path=checkpoint)
    if save is not None:
        trainer.save_checkpoint(save)
    trainer.test(module, datamodule=datamodule, verbose=False)
    state = trainer.strategy.lightning_module_state_dict()
    weights = {name: value.detach().clone() for name, value in state.items()}
    return weights, losses.logged


wide = partial(unet, periodic_longitude=True, poles="replicate")
