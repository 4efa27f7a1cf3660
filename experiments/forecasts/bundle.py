"""Bundles: one file to share a trained model. Read a model from a run folder or a bundle.

A bundle is a ZIP archive without compression, of these files:

model.json            format, name, training data, channels, precision, provenance, licence
config.yaml           the model and how its features are made
weights.safetensors   weights, normalisation statistics and, if asked for, quantiles of past truth
README.md             a card: use, training data, scores, licence
checksums.json        SHA-256 of each of the others

Nothing in it can run code: weights are plain numbers (https://github.com/huggingface/safetensors),
and the configuration is checked like that of a run from someone else; see
`ens10.experiments.runs.trust`.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from ens10 import __version__
from ens10.climate import Normaliser
from ens10.command_options import BundleOptions
from ens10.durable import whole_file
from ens10.errors import ArgumentError, Ens10Error, FileError
from ens10.experiments.forecasts.past_truth import PastTruth
from ens10.experiments.runs import provenance
from ens10.experiments.runs.checkpoints import BEST, read_checkpoint
from ens10.experiments.runs.reading import run_parts
from ens10.experiments.runs.trust import (
    checked_config,
    checked_text,
    is_user_config,
    record_user_config,
)
from ens10.experiments.scoring.score import in_words, read_states
from ens10.experiments.training.folder import CHECKPOINTS, CONFIG
from ens10.loader.datamodule import EnsembleDataModule, TrainingData, normaliser_of
from ens10.options import chosen, takes
from ens10.partial import Partial, check_target
from ens10.untrusted import check_regular, dataclass_of, parse_json, readable

FORMAT = 1
MODEL, WEIGHTS, CARD, CHECKSUMS = "model.json", "weights.safetensors", "README.md", "checksums.json"
_FILES = (MODEL, CONFIG, WEIGHTS, CARD, CHECKSUMS)
_STATISTICS = ("mean", "scale")
_MODEL_PREFIX, _STATISTICS_PREFIX = "model.", "statistics."
_QUANTILES = "truth_quantiles"
_LONGEST = 200  # characters of a message about a key
_REMEDY = "Fetch it again, or make it again with `ens10 bundle`"
# the earliest time of ZIP; constant, so that equal runs give equal bytes
EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Parts:
    """The parts of a trained model: configuration, weights, statistics and training metadata.

    Attributes:
        path: run folder or bundle.
        name: of the run.
        config: its configuration, which names trusted code only.
        weights: parameters and buffers by name.
        normaliser: normalisation statistics of the features.
        training: description of the training data of each target and lead time.
        checksum: SHA-256 of the checkpoint or bundle.
        truth_quantiles: quantiles of past truth that a bundle keeps, by level: an array (12, H, W)
            of the months for each target and lead time.
    """

    path: Path
    name: str
    config: dict[str, Any]
    weights: dict[str, Tensor]
    normaliser: Normaliser
    training: list[TrainingData]
    checksum: str
    truth_quantiles: Mapping[float, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Versioned:
    format: int


@dataclass(frozen=True)
class Description(_Versioned):
    """The content of model.json; what bundles of earlier versions may lack is optional.

    Attributes:
        format: version of the format.
        name: of the run.
        channels: features with normalisation statistics, in order.
        trained: see `TrainingData.read`.
        licence: under which others may use the model.
        ens10: version that made the bundle.
        provenance: of the run.
        truth_quantiles: levels of the quantiles of past truth.
    """

    name: str
    channels: list[str]
    trained: dict[str, Any]
    licence: str = ""
    ens10: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    truth_quantiles: list[float] = field(default_factory=list)


def read_parts(path: Path | str, trust: Sequence[str] = (), *, with_model: bool = True) -> Parts:
    """Read the parts of a trained run or of a bundle.

    Args:
        path: folder of the run, or the bundle.
        trust: modules besides this package whose classes it may use.
        with_model: False if the model is there as an object.

    Raises:
        FileError: there is no such run or bundle, it is damaged or was changed, or it names code
            that is not trusted.
    """
    path = Path(path)
    return _read_bundle(path, trust) if path.is_file() else _read_run(path, trust, with_model)


@takes(BundleOptions)
def bundle(
    run: Path | str, out: Path | str, options: BundleOptions | None = None, **named: Any
) -> Path:
    """Write a trained run as one file to share.

    Args:
        run: folder of the run.
        out: the file, such as "unet.ens10".
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The file's path.

    Raises:
        FileError: the file exists, or the run cannot be read.
        ArgumentError: quantiles of past truth, and no store with it.
    """
    run, out, options = Path(run), Path(out), chosen(BundleOptions, options, named)
    check_target(out, options.force, _is_bundle, "a bundle")
    parts = read_parts(run)
    levels = sorted(set(options.truth_quantiles))
    about = _describe(parts, options.licence) | ({"truth_quantiles": levels} if levels else {})
    past = _truth_quantiles(parts, levels, options.history)
    files = {
        MODEL: _json(about),
        CONFIG: _shared_config(run, parts),
        WEIGHTS: save_tensors(_tensors(parts) | past),
        CARD: _card(parts, options.licence).encode(),
    }
    files[CHECKSUMS] = _json({name: sha256(data).hexdigest() for name, data in files.items()})
    with (
        Partial(out).lock("ens10 bundle"),
        whole_file(out) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, EARLIEST_TIME), data)
    return out


def _truth_quantiles(
    parts: Parts, levels: Sequence[float], store: Path | str | None
) -> dict[str, Tensor]:
    """Return the quantiles of past truth, (targets and lead times, 12, L, H, W), by their name.

    Raises:
        ArgumentError: a level outside (0, 1), or no store with the truth.
    """
    outside = [level for level in levels if not 0 < level < 1]
    if outside:
        raise ArgumentError("truth_quantiles", f"{outside[0]:g} is not between 0 and 1")
    if not levels:
        return {}
    store = parts.config["data"].get("store", "") if store is None else store
    past = [PastTruth(parts.name, store, training) for training in parts.training]
    quantiles = np.stack([truth.all_quantiles(levels) for truth in past])
    return {_QUANTILES: torch.from_numpy(quantiles)}


def _read_truth_quantiles(parts: Parts, levels: list[float], values: Tensor | None) -> Parts:
    """Return the parts of a bundle with its quantiles of past truth.

    Raises:
        FileError: the tensor has not the shape of these levels on the grid.
    """
    expected = (len(parts.training), 12, len(levels), *parts.normaliser.mean.shape[-2:])
    if values is None:
        values = torch.zeros(expected if not levels else 0)
    if tuple(values.shape) != expected or values.dtype != torch.float32 or values.isinf().any():
        reason = f"damaged: {_QUANTILES} are not finite float32 numbers of the shape {expected}"
        raise FileError(parts.path, reason, _REMEDY)
    maps = {level: list(values[:, :, n].numpy()) for n, level in enumerate(levels)}
    return replace(parts, truth_quantiles=maps)


def _is_bundle(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist()) == sorted(_FILES)
    except (OSError, zipfile.BadZipFile):
        return False


def _read_run(run: Path, trust: Sequence[str], with_model: bool) -> Parts:
    if not run.exists():
        raise FileError(run, "no such run or bundle", "Check the path")
    if not (run / CONFIG).is_file():
        reason = f"not a run (it has no {CONFIG}), nor a bundle"
        raise FileError(run, reason, "Train one with `ens10 fit`")
    file = run / CHECKPOINTS / BEST
    with _not_replaced(run / CONFIG, file):
        text = checked_config(run / CONFIG, trust, fit=False, with_model=with_model)
        config = yaml.safe_load(text)
        checkpoint = read_checkpoint(file)
        checksum = sha256(file.read_bytes()).hexdigest()
    state = checkpoint.get(EnsembleDataModule.__name__) or {}
    if "mean" not in state:
        raise FileError(file, "it holds no normalisation statistics", "Train again")
    training = state.get("trained") or _older_training_metadata(run)
    weights = checkpoint["state_dict"]
    return _parts(file, run, run.resolve().name, config, weights, state, training, checksum)


@contextmanager
def _not_replaced(*paths: Path) -> Iterator[None]:
    """Refuse files that another process replaces while the block reads them.

    Raises:
        FileError: one was replaced.
    """
    before = [_version(path) for path in paths]
    yield
    for path, version in zip(paths, before, strict=True):
        if _version(path) != version:
            raise FileError(path, "was replaced while it was read", "Run the same command again")


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _parts(
    file: Path,
    path: Path,
    name: str,
    config: dict[str, Any],
    weights: dict[str, Tensor],
    statistics: Mapping[str, Any],
    trained: object,
    checksum: str,
) -> Parts:
    """Check statistics and training metadata, and that both are of the same lead times.

    Raises:
        FileError: they cannot be used; the message names the key.
    """
    try:
        training, normaliser = TrainingData.read(trained), normaliser_of(statistics)
        *leads, _, _, _ = normaliser.mean.shape
        if leads and leads[0] != len({part.step for part in training}):
            raise ValueError(f"the statistics are of {leads[0]} lead times, trained of others")
    except ValueError as error:
        raise FileError(file, f"damaged: {error}", _REMEDY) from error
    return Parts(path, name, config, weights, normaliser, training, checksum)


def _older_training_metadata(run: Path) -> dict[str, Any]:
    """Describe the training data of a run whose checkpoint does not, from its provenance."""
    facts = provenance.read_provenance(run)
    missing = [name for name in ("target", "step") if name not in facts]
    if missing:
        raise FileError(run / provenance.FILE, f"it has no {missing[0]}", "Train again")
    names = {f.name for f in fields(TrainingData)} - {"dates"}  # which counts them there
    training = {name: facts[name] for name in names if name in facts}
    return {"step_units": "h", "units": str(facts.get("target_units") or ""), **training}


def _read_bundle(path: Path, trust: Sequence[str]) -> Parts:
    with _not_replaced(path):
        files = _read_files(path)
        checksum = sha256(path.read_bytes()).hexdigest()
    about = _read_description(path, files[MODEL])
    config = yaml.safe_load(checked_text(files[CONFIG], path / CONFIG, trust))
    with readable(path, f"damaged: {WEIGHTS}", _REMEDY):
        tensors = load_tensors(files[WEIGHTS])
    weights = {
        name.removeprefix(_MODEL_PREFIX): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_MODEL_PREFIX)
    }
    statistics: dict[str, Any] = {
        name: tensors.pop(_STATISTICS_PREFIX + name, None) for name in _STATISTICS
    }
    quantiles = tensors.pop(_QUANTILES, None)
    if tensors:
        reason = f"damaged: {min(tensors)} belongs neither to a model nor to statistics"
        raise FileError(path, reason, _REMEDY)
    statistics["channels"] = about.channels
    parts = _parts(path, path, about.name, config, weights, statistics, about.trained, checksum)
    _require_same_grid(parts)
    return _read_truth_quantiles(parts, about.truth_quantiles, quantiles)


def _require_same_grid(parts: Parts) -> None:
    """Refuse a bundle whose statistics are of another grid than its training.

    Run folders may have such, if a model without parameters of points is tried on other points.

    Raises:
        FileError: it names the axis.
    """
    rows, columns = parts.normaliser.mean.shape[-2:]
    for part in parts.training:
        for axis, size in (("latitude", rows), ("longitude", columns)):
            count = len(getattr(part, axis))
            if count not in (0, size):
                reason = f"damaged: trained.{axis} has {count} values, the statistics {size}"
                raise FileError(parts.path, reason, _REMEDY)


def _read_description(path: Path, text: bytes) -> Description:
    """Read model.json.

    Raises:
        FileError: it is of another format, or a key is missing or has a value of another type.
    """
    try:
        content = parse_json(text)
        version = dataclass_of(_Versioned, content).format  # others may have other keys
        if version != FORMAT:
            reason = f"a bundle of format {version}; this version reads {FORMAT}"
            raise FileError(path, reason, "Update ens10, or make the bundle again")
        return dataclass_of(Description, content)
    except ValueError as error:
        reason = f"damaged: {MODEL}: {str(error)[:_LONGEST]}"
        raise FileError(path, reason, _REMEDY) from error


def _read_files(path: Path) -> dict[str, bytes]:
    """Read the files of a bundle, and compare each with its checksum.

    Raises:
        FileError: it is not a bundle, is damaged, or was changed.
    """
    check_regular(path)
    with readable(path, "not a bundle, or damaged", _REMEDY), zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        names = sorted(part.filename for part in parts)
        if names != sorted(_FILES):
            raise FileError(path, f"not a bundle: it holds {', '.join(names[:9])}", _REMEDY)
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise FileError(path, "not a bundle: its parts are compressed", _REMEDY)
        if sum(part.file_size for part in parts) > path.stat().st_size:
            raise FileError(path, "damaged: its parts are larger than the file", _REMEDY)
        files = {name: archive.read(name) for name in _FILES}
        sums = parse_json(files[CHECKSUMS])
        changed = [
            name
            for name in _FILES
            if name != CHECKSUMS and sums.get(name) != sha256(files[name]).hexdigest()
        ]
    if changed:
        raise FileError(path, f"{changed[0]} was changed after the bundle was made", _REMEDY)
    return files


def _tensors(parts: Parts) -> dict[str, Tensor]:
    """Return weights and statistics by their names in a bundle; no two share memory.

    Raises:
        FileError: a weight is not a tensor.
    """
    non_tensors = [name for name, value in parts.weights.items() if not isinstance(value, Tensor)]
    if non_tensors:
        raise FileError(
            parts.path, f"{non_tensors[0]} is not a tensor", "Share the run folder instead"
        )
    tensors = {f"{_MODEL_PREFIX}{name}": value for name, value in parts.weights.items()}
    tensors |= {
        f"{_STATISTICS_PREFIX}{name}": torch.from_numpy(getattr(parts.normaliser, name))
        for name in _STATISTICS
    }
    return {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }


def _shared_config(run: Path, parts: Parts) -> bytes:
    """The configuration of the model and its features, without paths of this machine."""
    data = {key: value for key, value in parts.config["data"].items() if key != "store"}
    precision = (parts.config.get("trainer") or {}).get("precision")
    trainer = {} if precision is None else {"trainer": {"precision": precision}}
    shared = {"model": parts.config["model"], "data": data, **trainer}
    text = yaml.safe_dump(shared, sort_keys=False).encode()
    if is_user_config((run / CONFIG).read_bytes()):
        record_user_config(text)
    return text


def _describe(parts: Parts, licence: str) -> dict[str, Any]:
    trained = [asdict(part) for part in parts.training]
    return {
        "format": FORMAT,
        "name": parts.name,
        "licence": licence,
        "ens10": __version__,
        "trained": trained[0] if len(trained) == 1 else {"parts": trained},
        "channels": list(parts.normaliser.channels),
        "provenance": _provenance(parts.path),
    }


def _provenance(run: Path) -> dict[str, Any]:
    return provenance.read_provenance(run) if (run / provenance.FILE).is_file() else {}


def _card(parts: Parts, licence: str) -> str:
    """The model card, in Markdown."""
    training, facts = parts.training[0], _provenance(parts.path)
    axes = {"latitude": training.latitude, "longitude": training.longitude}
    grid = [_axis(values, name) for name, values in axes.items() if values]
    dates = [datetime.fromtimestamp(s, UTC) for s in training.dates]
    span = f"{len(dates)} dates, {min(dates):%Y-%m-%d} to {max(dates):%Y-%m-%d}" if dates else ""
    inputs = [c.removesuffix(":mean") for c in parts.normaliser.channels if c.endswith(":mean")]
    rows: Mapping[str, Any] = {
        "corrects": "; ".join(
            f"{part.target} ({part.units}) at lead {part.step:g} {part.step_units}"
            for part in parts.training
        ),
        "model": str(parts.config["model"].get("class_path", "")),
        "grid": "; ".join(grid),
        "inputs": ", ".join(inputs),
        "members": training.members,
        "trained on": span,
        "training data": (facts.get("data") or {}).get("checksum"),
        "protocol": facts.get("protocol"),
        "parameters": facts.get("parameters"),
        "seed": facts.get("seed"),
        "commit": facts.get("commit"),
        "scores on the test dates": _scores(parts.path),
        "licence": licence or "not stated",
    }
    lines = [f"- {name}: {value}" for name, value in rows.items() if value not in (None, "")]
    use = f"    ens10 apply {parts.name}.ens10 FORECAST --out corrected.nc"
    return "\n".join([f"# {parts.name}", "", *lines, "", "Use:", "", use, ""])


def _axis(values: Sequence[float], name: str) -> str:
    return f"{len(values)} {name}s from {values[0]:g} to {values[-1]:g}"


def _scores(run: Path) -> str:
    folders = run_parts(run)
    try:
        texts = [in_words(read_states(folder)) for folder in folders]
    except Ens10Error:
        return "not scored"
    if len(texts) == 1:
        return texts[0]
    return "; ".join(f"{folder.name}: {text}" for folder, text in zip(folders, texts, strict=True))


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
