"""Score a model of members with fewer members than it was trained with.

    python -m ens10.experiments.runner.sizes RUN --sizes 2 5 10

It predicts the run's test dates from the first 2, 5 and 10 members, scores them, and writes
`RUN/sizes.csv`, which `ens10 report` shows.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError
from ens10.experiments.runner.tasks import members_of
from ens10.experiments.runs import provenance
from ens10.experiments.runs.trust import write_config
from ens10.experiments.scoring.members import SIZES
from ens10.experiments.scoring.run_results import SIZES as SIZES_FILE
from ens10.experiments.scoring.score import score_run
from ens10.experiments.scoring.writers import csv_of
from ens10.experiments.training.folder import CONFIG
from ens10.experiments.training.run import run_stage
from ens10.loader.batch_layouts import uses_members
from ens10.metrics import summarise
from ens10.partial import Partial
from ens10.untrusted import read_mapping
from ens10.usage import command_parser, reports_errors

_COLUMNS = ("members", "crps", "crps_fair", "spread_error")


def score_sizes(run: Path | str, sizes: Sequence[int] | None = None) -> Path:
    """Score a trained model on the first members of the ensemble, for several numbers of them.

    Args:
        run: folder of a run that was trained, with `data.kind: members`.
        sizes: numbers of members; None for 2, 5 and 10, as far as the data have them.

    Returns:
        The path of `sizes.csv`: plain CRPS, fair CRPS and spread/error of each.

    Raises:
        FileError: the folder holds no trained run.
        ArgumentError: its network does not take members, or more are asked for than there are.
    """
    run = Path(run)
    if not takes_members(run):
        raise ArgumentError("run", f"{run.name} does not take members", "Give a run that does")
    config = _config(run)
    if sizes is None:
        data = config["data"]
        member_count = members_of(Path(data["store"]), data["target"], data.get("step"))
        sizes = [size for size in SIZES if size <= member_count]
    partial = Partial(run / SIZES_FILE, "[0-9]*")
    with partial.lock("ens10 sizes"):
        lines = [_score(run, config, size, partial) for size in sizes]
        write_whole(run / SIZES_FILE, csv_of(_COLUMNS, lines))
    return run / SIZES_FILE


def takes_members(run: Path) -> bool:
    """Return True if a run's model takes the features of each member."""
    return uses_members(_config(run)["data"])


def _config(run: Path) -> dict[str, Any]:
    if not (run / CONFIG).is_file():
        raise FileError(run, f"no run (it has no {CONFIG})", "Make one with `ens10 fit`")
    config = read_mapping(run / CONFIG)
    if not isinstance(config.get("data"), dict):
        raise FileError(run / CONFIG, "not the configuration of a run", "Train the run again")
    return config


def _score(run: Path, config: dict[str, Any], size: int, partial: Partial) -> dict[str, Any]:
    """Predict and score with `size` members in a temporary folder."""
    part = partial.path / str(size)
    partial.clear()
    (part / "checkpoints").mkdir(parents=True)
    new_config = {**config, "data": {**config["data"], "ensemble": size}}
    write_config(part / CONFIG, new_config, derived_from=run / CONFIG)
    shutil.copyfile(run / "checkpoints" / "best.ckpt", part / "checkpoints" / "best.ckpt")
    shutil.copyfile(run / provenance.FILE, part / provenance.FILE)
    try:
        run_stage("predict", ["--run", str(part), "--quiet"])
        scores = summarise(score_run(part), maps=False)
    finally:
        partial.discard()
    values = {name: f"{float(scores[name]):.9g}" for name in _COLUMNS[1:] if name in scores}
    return {"members": size, **values}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 with one line on bad input."""
    parser = command_parser("python -m ens10.experiments.runner.sizes")
    parser.add_argument("run", type=Path)
    text = f"default: {', '.join(map(str, SIZES))}, as far as the data have them"
    parser.add_argument("--sizes", type=int, nargs="+", metavar="M", help=text)
    options = parser.parse_args(arguments)
    print(score_sizes(options.run, options.sizes).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
