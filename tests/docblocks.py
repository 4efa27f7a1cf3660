"""The code on the pages: what README.md and docs/ show, and what of it is not run, and why."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]

# Page -> the tests that run its code, in the order of the page, but for what is named below.
RUN_BY = {
    "README.md": "tests/test_readme.py",
    "docs/add_your_own.md": "tests/test_docs_code.py",
    "docs/cards_statistical.md": "tests/models/test_statistical_arrays.py",
    "docs/data.md": "tests/ens10/test_data_page.py",
    "docs/in_use.md": "tests/experiments/test_apply.py",
    "docs/loggers.md": "tests/experiments/test_loggers_page.py",
    "docs/real_data.md": "tests/ens10/test_real_data_page.py",
    "docs/scores.md": "tests/test_readme.py",
    "docs/stations.md": "tests/experiments/test_stations_page.py",
    "docs/submissions.md": "tests/experiments/test_submissions.py",
    "docs/use.md": "tests/test_readme.py",
}

# Page -> the tests that read its YAML.
YAML_BY = {
    "docs/ablations.md": "tests/experiments/test_ablation_spec.py",
    "docs/add_your_own.md": "tests/test_docs_code.py",
    "docs/stations.md": "tests/experiments/test_stations_page.py",
    "docs/traps.md": "tests/test_docs_blocks.py",
}

# Page -> what its lines begin with, and why they are not run. Their words are parsed.
NOT_RUN = {
    "README.md": {
        "git clone": "these files are a clone",
        "cd ens10": "the same",
        "pip install": "tests/packaging install",
    },
    "docs/ablations.md": {
        "python -m ens10.experiments.studies.ablation": "hours; tests/experiments/test_ablation.py",
        "ens10 fit": "with a file of such a run; tests/experiments/test_ablation_configs.py",
    },
    "docs/stations.md": {
        "python -m ens10.experiments.studies": "tests/experiments/test_unseen_places.py",
    },
    "docs/models.md": {
        "ens10 fit": "with truth at two lead times; tests/experiments/test_several_targets.py",
    },
    "docs/add_into.md": {
        "python tests/generated_lists.py": "tests/test_generated_lists.py runs its parts",
        "python tests/result_versions.py": "tests/experiments/test_result_versions.py",
        "python -m pytest": "these are the tests",
    },
    "docs/data.md": {
        "ens10 download era5 --kind truth --dates all --fields": "20 years of ERA5; "
        "tests/ens10/test_download_truth.py fetches some of a small one",
    },
    "docs/gpu.md": {
        "make cuda": "needs a GPU; tests/devices/test_gpu_benchmark.py runs its parts on a CPU",
        "python benchmarks/cuda.py": "the same",
    },
    "docs/heat.md": {
        "python -m ens10.experiments.studies.heat": "minutes; tests/experiments/test_heat.py",
    },
    "docs/index.md": {
        "pip install": "tests/packaging install",
        "ens10 demo": "minutes; tests/experiments/test_demo.py",
    },
    "docs/install.md": {"pip install": "tests/packaging install"},
    "docs/in_use.md": {
        "ens10 fit --config experiments/configs/emos_window.yaml": "with daily forecasts; "
        "tests/models/test_statistical_window.py",
        "ens10 predict --run runs/window": "the same",
        "ens10 score runs/window": "the same",
        "ens10 prepare archive": "tests/test_readme.py runs these commands on other files",
        "ens10 fit --config experiments": "the same",
        "ens10 predict --run runs/emos": "the same",
        "ens10 score runs/emos": "the same",
        "ens10 bundle demo": "the demonstration takes minutes; tests/experiments/test_bundle.py",
    },
    "docs/many_devices.md": {
        "ens10 plan": "tests/experiments/test_plan.py plans smaller ones",
        "ens10 fit": "four devices; tests/experiments/test_many_devices_page.py, with what follows",
        "torchrun": "two nodes; tests/models/parallel/test_torchrun.py runs it on one",
        "#SBATCH": "SLURM reads it",
        "srun ens10 fit": "a cluster",
    },
    "docs/real_data.md": {
        "pip install": "tests/packaging install",
        "ens10 fit --config experiments": "tests/ens10/test_real_data_page.py, with what follows",
        "ens10 predict --run runs/wb2": "the same",
        "ens10 score runs/wb2": "the same",
    },
    "docs/cards_statistical.md": {
        "python -m ens10.experiments.studies": "tests/experiments/test_beyond_training.py",
    },
    "docs/scores.md": {
        "ens10 report": "the same runs; tests/test_readme.py makes one of others",
        "python -m ens10.experiments.studies": "tests/experiments/test_uncertain_truth.py",
    },
    "docs/use.md": {
        "ens10 prepare seas5_era5_t2m.nc": "its data are not in the repository",
        "pip install": "tests/packaging install",
    },
    "docs/traps.md": {
        "ens10 ": "a protocol of one's own; tests/ens10/test_protocol_files.py",
        "python -m ens10.experiments.studies.traps": "hours; tests/experiments/test_traps.py",
    },
}
NOT_CODE = {  # page -> what such blocks begin with
    "docs/architecture.md": ("GRIB, netCDF, Zarr --prepare-->", "STORE/sfc, pl"),
    "docs/heat.md": ("u' = u + a",),
    "docs/stations.md": ("station,time,step", "dimensions:"),
}
_FENCE = re.compile(r"```(\w*) ?([\w.]*)$")


@dataclass(frozen=True)
class Block:
    """One block: where it is, its language ("" if indented), its file name if it has one."""

    page: str
    line: int
    language: str
    name: str
    text: str

    @property
    def lines(self):
        """Its lines, those that end in a backslash joined with the next, without comments."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [re.split(r" {2,}# ", line)[0].strip() for line in joined if line.strip()]


def blocks(page):
    """All blocks of a page, fenced or indented after an empty line."""
    found, fence, start, held = [], None, 0, []
    lines = (ROOT / page).read_text().splitlines()
    for number, line in enumerate([*lines, "end"], 1):
        if fence is not None:
            if line == "```":
                found.append(Block(page, start, *fence.groups(), "\n".join(held) + "\n"))
                fence, held = None, []
            else:
                held.append(line)
        elif line.startswith("    ") and (held or not lines[number - 2].strip()):
            start = start if held else number
            held.append(line[4:])
        elif line.strip() or not held:
            if held:
                found.append(Block(page, start, "", "", "\n".join(held).rstrip() + "\n"))
            fence, start, held = _FENCE.fullmatch(line), number, []
        else:
            held.append("")
    return found


def code(page):
    """The blocks of a page that are code, but for YAML."""
    starts = NOT_CODE.get(page, ("\0",))
    found = [block for block in blocks(page) if block.language not in ("bibtex", "yaml")]
    return [block for block in found if not block.text.startswith(starts)]


def yamls(page):
    """The text of the YAML blocks of a page."""
    return [block.text for block in blocks(page) if block.language == "yaml"]


def is_run(page, line):
    """Whether a line is run, and not among the exceptions."""
    return not line.startswith(tuple(NOT_RUN.get(page, ("\0",))))


def commands(page, *, run=True):
    """Words of the `ens10` commands on a page, those that are run or the others."""
    found = [line for block in code(page) if not block.language for line in block.lines]
    chosen = [line for line in found if is_run(page, line) is run]
    return [
        shlex.split(line.partition("ens10 ")[2])
        for line in chosen
        if " -m " not in line and "ens10 " in line
    ]


def python(page):
    """The Python on a page that is not a file."""
    return [
        block.text
        for block in code(page)
        if (block.language == "python" and not block.name)
        or (not block.language and block.text.startswith(("from ", "import ")))
    ]
