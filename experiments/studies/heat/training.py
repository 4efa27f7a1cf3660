"""Cells of the heat experiment: one configuration and seed, one JSON of results."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from ens10.experiments.demo import config_path
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runs import provenance
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.studies.heat.world import HeatData, Ints, Split
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.training.options import StageParser
from ens10.untrusted import read_mapping

_STATIONS = ("ens10.models", "ens10.experiments.studies.heat")
_PROGRAM = "python -m ens10.experiments.studies.heat"
_OFF = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
_VERSIONS = ("python", "torch", "pytorch-lightning", "numpy")


class HeatCLI(LightningCLI):
    """Lightning's command line on `HeatModule` and `HeatData`, with one seed for everything.

    Args:
        args: options.
    """

    def __init__(self, args: Sequence[str]) -> None:
        super().__init__(
            model_class=pl.LightningModule,
            subclass_mode_model=True,
            datamodule_class=HeatData,
            save_config_callback=None,
            seed_everything_default=0,
            parser_class=StageParser,
            parser_kwargs={"prog": _PROGRAM, "allow_abbrev": False},
            trainer_defaults=dict.fromkeys(_OFF, False),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            run=False,
            args=list(args),
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link one seed to the world, the order of the pairs and the weights."""
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)


def run_cell(
    config: str, seed: int, options: Sequence[str] = (), split: Split = "test"
) -> dict[str, Any]:
    """Train a configuration and score it.

    Args:
        config: name of a configuration in `experiments/configs`, or path of a YAML file.
        seed: of the world, the order of the pairs and the weights.
        options: of the command line besides, e.g. `--trainer.max_steps 100`.
        split: "test", or "val" to choose options by.

    Returns:
        Results: scores, steps, parameters, CPU seconds of the training, the map of experts.

    Raises:
        SystemExit: an unknown option or key.
    """
    with suppress_lightning_warnings():
        cli = HeatCLI(
            ["--config", str(config_file(config)), "--seed_everything", str(seed), *options]
        )
        model, data, trainer = cli.model, cli.datamodule, cli.trainer
        data.pairs("train")
        start = time.process_time()
        trainer.fit(model, datamodule=data)
        seconds = time.process_time() - start
        trainer.test(model, data.held_out(split), verbose=False)
    return {
        "config": Path(config).stem,
        "seed": seed,
        "split": split,
        "steps": trainer.global_step,
        "batch_size": data.batch_size,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "cpu_seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        **_round(model.scores()),
        "routing": _lines_of(model.routing()),
        "versions": {k: v for k, v in provenance.versions().items() if k in _VERSIONS},
    }


def _lines_of(expert_map: Ints | None) -> list[str] | None:
    """Return a map as rows of one digit a point."""
    return None if expert_map is None else ["".join(map(str, row)) for row in expert_map.tolist()]


def _round(scores: dict[str, Any]) -> dict[str, Any]:
    """Return scores with six digits."""

    def round_value(value: Any) -> Any:
        if isinstance(value, list):
            return [round_value(v) for v in value]
        return None if value is None else float(np.format_float_scientific(value, precision=5))

    return {name: round_value(value) for name, value in scores.items()}


def config_file(config: str) -> Path:
    """Return the file of a configuration, by its name in `experiments/configs` or as a path."""
    path = config_path(config)
    return path if path.is_file() else Path(config)


@dataclass(frozen=True)
class HeatCell(JsonCell):
    """One configuration (the variant: its name, or the path of a YAML file) with one seed.

    Args:
        options: of the command line besides.
    """

    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Configuration and seed in words, for progress and error messages."""
        return f"{Path(self.variant).stem}, seed {self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by seed and configuration."""
        return f"seed{self.seed}/{Path(self.variant).stem}"

    def current_key(self) -> Key:
        """Return the key, which includes the configuration of the world instead of a checksum."""
        content = read_mapping(config_file(self.variant))
        config = {"config": content, "options": list(self.options), "seed": self.seed}
        return key_of(config, "", _STATIONS)

    def result(self) -> Result:
        """Train and score the configuration."""
        return run_cell(self.variant, self.seed, self.options)
