"""One cell of the heat experiment: one configuration, one seed, one JSON of results."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from ens10.durable import write_whole
from ens10.experiments import provenance
from ens10.experiments.demo import config_path
from ens10.experiments.heat.data import HeatData, Split
from ens10.experiments.heat.module import HeatModule
from ens10.experiments.quiet import few_words
from ens10.experiments.usage import parser_class

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
            parser_class=parser_class(LightningArgumentParser),
            parser_kwargs={"prog": "python -m ens10.experiments.heat", "allow_abbrev": False},
            trainer_defaults={
                "logger": False,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
            },
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            run=False,
            args=list(args),
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """One seed for the world, the order of the pairs and the weights."""
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)


def run_cell(
    config: str, seed: int, options: Sequence[str] = (), split: Split = "test"
) -> dict[str, Any]:
    """Trains a configuration and scores it.

    Args:
        config: name of a configuration in `experiments/configs`, or path of a YAML file.
        seed: of the world, the order of the pairs and the weights.
        options: of the command line besides, e.g. `--trainer.max_steps 100`.
        split: "test", or "val" to choose options by.

    Returns:
        Results: scores, steps, parameters, CPU seconds of the training, the map found.

    Raises:
        SystemExit: an option or key that is not known.
    """
    path = config_path(config)
    given = str(path) if path.is_file() else config
    with few_words():
        cli = HeatCLI(["--config", given, "--seed_everything", str(seed), *options])
        model, data, trainer = cli.model, cli.datamodule, cli.trainer
        data.pairs("train")
        started = time.process_time()
        trainer.fit(model, datamodule=data)
        seconds = time.process_time() - started
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
        **_described(model),
        "versions": {k: v for k, v in provenance.versions().items() if k in _VERSIONS},
    }


def _described(model: HeatModule) -> dict[str, Any]:
    """Scores with six digits, and the map as lines of one digit a point."""
    found = model.routing()
    lines = None if found is None else ["".join(map(str, row)) for row in found.tolist()]
    return {**_rounded(model.scores()), "routing": lines}


def _rounded(scores: dict[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(v) for v in value]
        return None if value is None else float(np.format_float_scientific(value, precision=5))

    return {name: short(value) for name, value in scores.items()}


def write_result(result: dict[str, Any], file: Path) -> None:
    """Writes a result whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(result, indent=1) + "\n")
