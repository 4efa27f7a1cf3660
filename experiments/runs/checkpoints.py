"""Read checkpoints without running code from them, and compare them with a model."""

import io
import pickle
import sys
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ens10.durable import whole_file
from ens10.errors import FileError, listing, printable
from ens10.untrusted import readable

BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"
Shapes = dict[str, tuple[int, ...]]
_MAX_NAMES = 3
_REMEDY = "Use the configuration that it was trained with (config.yaml in its run folder)"


def checkpoint_shapes(path: Path) -> Shapes:
    """Read the shape of each parameter and buffer in a checkpoint; see `read_checkpoint`."""
    return shapes(read_checkpoint(path)["state_dict"])


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read the content of a checkpoint.

    Nothing but tensors and plain values is ever unpickled, whatever the options and the
    environment say: a file that holds other objects could run any code.

    Args:
        path: a checkpoint that `ens10 fit` wrote.

    Raises:
        FileError: no such file, one that holds other objects, is damaged, or is no checkpoint.
    """
    if not path.is_file():
        raise FileError(path, "no such checkpoint", "Those of a run are in RUN/checkpoints")
    remedy = "Resume from another one, or train again"
    with warnings.catch_warnings(), readable(path, "damaged, or no checkpoint", remedy):
        warnings.simplefilter("ignore")  # torch remarks on a foreign pickle, then refuses it
        # from memory, a string that claims gigabytes is not made room for
        source = path if _is_zip(path) else io.BytesIO(path.read_bytes())
        try:
            checkpoint = torch.load(source, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise FileError(
                path,
                "holds more than tensors and plain values, or is damaged, and is not loaded",
                "Use a checkpoint that `ens10 fit` wrote",
            ) from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        remedy = "Those of a run are in RUN/checkpoints"
        raise FileError(path, "no checkpoint: it has no state_dict", remedy)
    return checkpoint


def _is_zip(path: Path) -> bool:
    """Return True if a file is a ZIP archive whose parts are no larger than itself.

    Raises:
        ValueError: a part claims to be larger; torch would make room for it.
    """
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        largest = max((part.file_size for part in file.infolist()), default=0)
    if largest > path.stat().st_size:
        raise ValueError(f"a part of {largest} bytes")
    return True


def resumable_checkpoint(folder: Path, *, repair: bool = False) -> Path | None:
    """Return the checkpoint to resume a training from; None if it has saved none.

    Args:
        folder: RUN/checkpoints.
        repair: whether to replace a damaged or missing `last.ckpt` by the one before, or by the
            best one, and to report damage on stderr. Only the process that writes may.

    Raises:
        FileError: all checkpoints are damaged.
    """
    last = folder / LAST
    checkpoints = [path for path in (last, folder / PREVIOUS, folder / BEST) if path.is_file()]
    intact = next((path for path in checkpoints if is_intact(path)), None)
    if intact is None and checkpoints:
        raise FileError(last, "damaged, and there is no other checkpoint", "Train again")
    if intact is None or intact == last or not repair:
        return intact
    if last.is_file():
        message = f"{last} is damaged; resuming from {intact.name}, the one before"
        print(f"ens10: {printable(message)}", file=sys.stderr)
    with whole_file(last) as file:
        file.write(intact.read_bytes())
    return last


def is_intact(path: Path) -> bool:
    """Return True if a checkpoint is a complete ZIP archive whose parts match their checksums."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except MemoryError:
        raise
    except Exception:  # zipfile and zlib raise any kind on a damaged file
        return False


def shapes(state: Mapping[str, Any]) -> Shapes:
    """Return the shape of each tensor of a state by name; other values of it are ignored."""
    return {n: tuple(value.shape) for n, value in state.items() if isinstance(value, Tensor)}


def differences(saved: Shapes, model: Shapes) -> list[str]:
    """Describe how the shapes in a checkpoint differ from a model's; empty if they agree.

    Args:
        saved: shapes in the checkpoint.
        model: shapes in the model.
    """
    missing = [name for name in model if name not in saved]
    unexpected = [name for name in saved if name not in model]
    other_shapes = [
        f"{name} {saved[name]}, in the model {shape}"
        for name, shape in model.items()
        if name in saved and saved[name] != shape
    ]
    groups = [
        ("it lacks", missing),
        ("the model lacks", unexpected),
        ("other shapes:", other_shapes),
    ]
    return [f"{label} {_shorten(names)}" for label, names in groups if names]


def other_architecture(path: Path, differing: list[str]) -> FileError:
    """Return the error about a checkpoint of another model.

    Args:
        path: the checkpoint.
        differing: descriptions from `differences`.
    """
    return FileError(path, f"of another model: {'; '.join(differing)}", _REMEDY)


def _shorten(names: list[str]) -> str:
    remaining = len(names) - _MAX_NAMES
    return listing(names[:_MAX_NAMES]) + (f" and {remaining} more" if remaining > 0 else "")
