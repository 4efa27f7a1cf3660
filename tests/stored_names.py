"""Record the class paths of kept results, and the names in the state of every configuration.

    python tests/stored_names.py

Writes to tests/data/stored/: `class_paths.json`, for each class that a shipped configuration or a
kept cell names its kind, the home of its `RESULT_VERSION` (which enters the key of a cell) and the
arguments that those give it; and `states.json.xz`, name and shape of each parameter and buffer of
each configuration's model. What stands there must open with later code, and stays: take away or
change an entry by hand, only if kept results and checkpoints need it no longer.
"""

import json
import lzma
import re
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "data" / "stored"
CLASS_PATHS, STATES = FOLDER / "class_paths.json", FOLDER / "states.json.xz"
CONFIGS = sorted((ROOT / "experiments" / "configs").glob("*.yaml"))
ARCHIVES = sorted((ROOT / "experiments" / "results").rglob("cells.zip"))
KINDS = (
    "StatisticalMethod",
    "Network",
    "Gate",
    "LightningModule",
    "Module",
    "Callback",
    "Strategy",
)
PATH = re.compile(r"\bens10(?:\.[a-z_]\w*)+\.[A-Z]\w*")
VERSIONED = re.compile(r'"(ens10(?:\.\w+)+)": \d')


def stored_texts():
    """Configurations that are shipped or stand in kept cells, and the keys of the cells."""
    for path in CONFIGS:
        yield path.read_text(encoding="utf-8")
    for path in ARCHIVES:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(("config.yaml", "cell.json")):
                    yield archive.read(name).decode()


def arguments_of(content):
    """Yield class path and arguments of every class in a configuration."""
    if isinstance(content, dict):
        if "class_path" in content:
            yield content["class_path"], set(content.get("init_args") or {})
        for value in content.values():
            yield from arguments_of(value)
    elif isinstance(content, list):
        for value in content:
            yield from arguments_of(value)
    elif isinstance(content, str) and PATH.fullmatch(content):
        yield content, set()


def imported(path):
    """The class of a class path."""
    from importlib import import_module

    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def kind_of(cls):
    """The first of the kinds that a class is of."""
    bases = {base.__name__ for base in cls.__mro__}
    return next((kind for kind in KINDS if kind in bases), "object")


def class_table():
    """What `class_paths.json` holds."""
    from ens10.experiments.runner.key import result_version

    arguments = {}
    for text in {text for text in stored_texts() if "class_path" in text or "model:" in text}:
        for path, names in arguments_of(yaml.load(text, yaml.CSafeLoader)):
            if path.startswith("ens10."):
                arguments[path] = arguments.get(path, set()) | names
    return {
        path: {
            "kind": kind_of(imported(path)),
            "version": next(iter(result_version(path))),
            "arguments": sorted(arguments[path]),
        }
        for path in sorted(arguments)
    }


def built(path):
    """The model of a configuration, without values where its layers allow."""
    import torch

    from ens10.errors import FileError
    from ens10.experiments.forecasts.weights import build_modules
    from ens10.experiments.training.data_numbers import read_config

    config = {"model": read_config(path)["model"], "data": {"target": "t2m"}}
    try:
        with torch.device("meta"):
            return build_modules(path, config)[0]
    except FileError:  # gates look at their values
        return build_modules(path, config)[0]


def state_of(model):
    """Name and shape of each parameter and buffer."""
    return {name: list(value.shape) for name, value in model.state_dict().items()}


def read_states():
    """The record, by configuration."""
    return json.loads(lzma.decompress(STATES.read_bytes()))


def main():
    """Add to both records; what stands there stays."""
    table = class_table() | json.loads(CLASS_PATHS.read_text())
    CLASS_PATHS.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")
    recorded = read_states()
    states = {p.stem: recorded.get(p.stem) or state_of(built(p)) for p in CONFIGS}
    states = dict(sorted((recorded | states).items()))
    STATES.write_bytes(lzma.compress(json.dumps(states).encode(), preset=9))
    for path in (CLASS_PATHS, STATES):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
