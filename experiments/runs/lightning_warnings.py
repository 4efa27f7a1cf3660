"""Suppress known, harmless messages of Lightning.

Each message is named; every other warning is shown.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_HARMLESS = (
    r".*does not have many workers which may be a bottleneck.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*Experiment logs directory .* exists and is not empty.*",
    r".*The number of training batches .* is smaller than the logging interval.*",
    r".*LightningCLI's args parameter is intended to run from within Python.*",
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",
    r".*Be aware that when using `ckpt_path`, callbacks used to create the checkpoint.*",
    r".*Total length of `list` across ranks is zero.*",
    r".*Couldn't infer the batch indices fetched from your dataloader.*",
)


@contextmanager
def suppress_lightning_warnings() -> Iterator[None]:
    """Suppress Lightning's info messages and known harmless warnings within the block."""
    logger = logging.getLogger("pytorch_lightning")
    seeding = logging.getLogger("lightning_fabric.utilities.seed")
    levels = [(log, log.level) for log in (logger, seeding)]
    try:
        for log, _ in levels:
            log.setLevel(logging.WARNING)
        with warnings.catch_warnings():
            for message in _HARMLESS:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        for log, level in levels:
            log.setLevel(level)
