"""Bundles that a stranger may send: mutations of a real one, with checksums that are right.

Each case has a name, the key that its error must name ("" where the file is no bundle at all), and
the file's bytes. `DOCUMENT`, `TENSORS` and `ARCHIVES` say what is done to each key.
"""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import load, save
from torch import Tensor

CHECKSUMS, CONFIG, MODEL = "checksums.json", "config.yaml", "model.json"
WEIGHTS = "weights.safetensors"
Files = dict[str, bytes]


class Case(NamedTuple):
    """A bundle that must be refused.

    Attributes:
        name: what was done to which key.
        key: the word that the error must hold beside the name of the bundle.
        content: bytes of the file.
    """

    name: str
    key: str
    content: bytes


class Raw(str):
    """JSON text that stands for a value that the encoder would not write."""


DEEP = Raw("[" * 5000 + "]" * 5000)
MANY_DIGITS = Raw("1" * 5000)
DOCUMENT: dict[str, Any] = {
    "null": None,
    "text": "x",
    "a number in a text": "1",
    "number": 7,
    "negative": -1,
    "fraction": 1.5,
    "true": True,
    "list": [],
    "list of null": [None],
    "list of text": ["x"],
    "list of lists": [[1.0]],
    "mapping": {},
    "mapping of null": {"x": None},
    "NaN": Raw("NaN"),
    "list of NaN": [Raw("NaN")],
    "infinity": Raw("Infinity"),
    "too large for a float": Raw("1" + "0" * 400),
    "list of huge": [Raw("1" + "0" * 400)],
    "list of 63 bits": [1 << 62],
    "more digits than Python reads": MANY_DIGITS,
    "deep": DEEP,
    "control characters": "\x1b[2Jens10: done\n\u202e",
}
LISTS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "without the last": lambda values: values[:-1],
    "one twice": lambda values: [*values, values[-1]],
    "a list within": lambda values: [*values[:-1], [values[-1]]],
}
TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda value: value.reshape(-1) if value.ndim != 1 else value[None],
    "a dimension more": lambda value: value[..., None],
    "transposed": lambda value: (
        value.mT if value.ndim > 1 else value[:, None] if value.ndim else value[None]
    ),
    "first half": lambda value: value[: len(value) // 2] if value.ndim else value[None],
    "empty": lambda value: value.new_zeros((0,) * max(1, value.ndim)),
    "NaN": lambda value: _with(value, torch.nan),
    "infinite": lambda value: _with(value, torch.inf),
    "whole numbers": lambda value: value.int() if value.is_floating_point() else value.float(),
    "complex": lambda value: value.to(torch.complex64),
    "truth values": lambda value: value.bool() if value.dtype != torch.bool else value.long(),
    "eight bits": lambda value: (
        value.to(torch.float8_e4m3fn) if value.is_floating_point() else value.char()
    ),
}


def _with(value: Tensor, number: float) -> Tensor:
    """A copy whose first element is another number."""
    changed = value.float().clone(memory_format=torch.contiguous_format)
    changed.reshape(-1)[:1] = number
    return changed


def files_of(bundle: bytes) -> Files:
    """The files of a bundle."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(files: Files, duplicate: str = "", **options: Any) -> bytes:
    """A bundle of files, with their checksums."""
    sums = {name: sha256(data).hexdigest() for name, data in files.items() if name != CHECKSUMS}
    files = files | {CHECKSUMS: json.dumps(sums).encode()}
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w", **options) as archive:
        warnings.simplefilter("ignore")  # duplicate names
        for name, data in files.items():
            archive.writestr(name, data)
        if duplicate:
            archive.writestr(duplicate, files[duplicate])
    return target.getvalue()


def encode(value: Any) -> str:
    """JSON in which `Raw` texts are written as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


def _paths(content: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in content.items():
        yield (*prefix, key)
        if isinstance(value, dict) and key == "trained":
            yield from _paths(value, (*prefix, key))


def _changed(content: dict[str, Any], path: tuple[str, ...], *value: Any) -> dict[str, Any]:
    """A copy with another value at a path, or without the key."""
    key, *inner = path
    if inner:
        return content | {key: _changed(content[key], tuple(inner), *value)}
    rest = {name: held for name, held in content.items() if name != key}
    return rest | ({key: value[0]} if value else {})


def documents(description: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Mutations of model.json: what was done, to which key, and the text."""
    for path in _paths(description):
        held = description
        for key in path:
            held = held[key]
        yield "missing", path, encode(_changed(description, path))
        for name, value in DOCUMENT.items():
            yield name, path, encode(_changed(description, path, value))
        if isinstance(held, list) and held:
            for name, change in LISTS.items():
                yield name, path, encode(_changed(description, path, change(held)))
    for name, value in DOCUMENT.items():
        yield name, (), encode(value)
    yield "no JSON", (), "{"


def document_cases(bundle: bytes) -> Iterator[Case]:
    """Bundles with a mutation of model.json."""
    files = files_of(bundle)
    for name, path, text in documents(json.loads(files[MODEL])):
        content = archive_of(files | {MODEL: text.encode()})
        is_json = path and DOCUMENT.get(name) not in (DEEP, MANY_DIGITS)
        yield Case(f"{'.'.join(path) or MODEL}: {name}", path[-1] if is_json else MODEL, content)


def tensor_cases(bundle: bytes) -> Iterator[Case]:
    """Bundles with a mutation of a tensor."""
    files = files_of(bundle)
    tensors = load(files[WEIGHTS])
    for key, value in tensors.items():
        changes = {name: tensors | {key: change(value)} for name, change in TENSORS.items()}
        changes["missing"] = {name: held for name, held in tensors.items() if name != key}
        changes["beside another"] = tensors | {f"{key}_2": value.clone()}
        for name, changed in changes.items():
            held = {n: v.contiguous() for n, v in changed.items()}
            same = held.keys() == tensors.keys() and all(
                held[n].dtype == v.dtype and torch.equal(held[n], v) for n, v in tensors.items()
            )
            if not same:
                content = archive_of(files | {WEIGHTS: save(held)})
                yield Case(f"{key}: {name}", key.rpartition(".")[2], content)


CONFIGURATIONS: dict[str, Any] = {
    "model": None,
    "data": None,
    "data.kind": 3,
    "data.extras": ["x"],
    "data.inputs": {"x": 1},
    "model.class_path": "ens10.models.networks.MLP",
    "model.init_args": [],
    "model.init_args.head": None,
    "model.init_args.network.init_args.hidden": -1,
    "model.init_args.network.init_args.in_channels": 10**30,
    "model.init_args.network.init_args": {"absent": 1},
}


def config_cases(bundle: bytes) -> Iterator[Case]:
    """Bundles with another value in config.yaml."""
    files = files_of(bundle)
    for name, value in CONFIGURATIONS.items():
        content = _changed(yaml.safe_load(files[CONFIG]), tuple(name.split(".")), value)
        changed = files | {CONFIG: yaml.safe_dump(content).encode()}
        yield Case(f"{name}: {value}", "", archive_of(changed))


def archive_cases(bundle: bytes) -> Iterator[Case]:
    """Files that are no bundles."""
    files = files_of(bundle)
    for name in files:
        yield Case(f"{name} twice", "", archive_of(files, duplicate=name))
    for name in (MODEL, CONFIG, WEIGHTS):
        rest = {other: data for other, data in files.items() if other != name}
        yield Case(f"{name} missing", "", archive_of(rest))
        yield Case(f"{name} empty", name, archive_of(files | {name: b""}))
        yield Case(f"{name} not UTF-8", name, archive_of(files | {name: b"\xff\xfe"}))
    yield Case("compressed", "", archive_of(files, compression=zipfile.ZIP_DEFLATED))
    yield Case("cut", "", bundle[: len(bundle) // 2])
    yield Case("empty", "", b"")
