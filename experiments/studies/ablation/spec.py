"""Specification of an ablation: a YAML with a base configuration and variants of it.

    question: What does the embedding of each grid point bring?
    base: location_unet
    variants:
      no_embedding: {model.init_args.network.init_args.embedding: 0}

A variant is keys of the configuration with dots, as the command line has them, and perhaps

    config    another configuration than the base
    against   the variant that it is compared with, in place of the base
    trained   a variant whose training it uses: its own keys, of `data` alone, are for its forecasts
    thin      n: it is trained on each n-th row and column, and used on all

`common` holds keys of all variants, `world` the size of synthetic worlds, and `worth: true` asks
for the page that counts in raw members. The base itself is the first variant, under its own name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.demo import config_path
from ens10.experiments.runner.tasks import WorldSize, config_of
from ens10.experiments.training.data_numbers import read_config
from ens10.untrusted import read_mapping

_KEYS = ("question", "base", "common", "variants", "world", "worth")
_WORDS = ("config", "against", "trained", "thin")
_PARTS = ("data", "model", "trainer")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_WORLD = ("grid", "years", "dates", "levels", "steps", "kinds", "world")


@dataclass(frozen=True)
class Variant:
    """A variant of the base configuration, which is one line of the table.

    Attributes:
        name: of the variant and its run.
        config: the configuration that it changes.
        overlay: changed values by key with dots.
        reference: name of the variant that it is compared with; None for the base itself.
        training_variant: name of the variant whose training it uses; None to train it itself.
        thin: distance of the rows and columns that it is trained on; 1 for all.
    """

    name: str
    config: Path
    overlay: Mapping[str, Any] = field(default_factory=dict)
    reference: str | None = None
    training_variant: str | None = None
    thin: int = 1

    @cached_property
    def content(self) -> dict[str, Any]:
        """The full configuration, with the values of the overlay."""
        return apply_overlay(read_config(self.config), self.overlay)


@dataclass(frozen=True)
class Ablation:
    """A question and the variants that answer it.

    Attributes:
        source: name or path that it was loaded by.
        name: of its folders.
        question: in words.
        variants: the base first.
        world: attributes of `WorldSize` that differ from its defaults.
        worth: whether CRPS are also expressed in raw members.
    """

    source: str
    name: str
    question: str
    variants: tuple[Variant, ...]
    world: Mapping[str, Any] = field(default_factory=dict)
    worth: bool = False

    @property
    def base(self) -> Variant:
        """The variant with which the others are compared by default."""
        return self.variants[0]

    def variant(self, name: str) -> Variant:
        """Return the variant with a name.

        Raises:
            UnknownNameError: there is none.
        """
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise UnknownNameError("variant", name, [variant.name for variant in self.variants])

    def size(self, **options: Any) -> WorldSize:
        """Return the size of the synthetic worlds: options, else the YAML, else the defaults.

        Args:
            **options: attributes of `WorldSize`, with `years` as a number; None for the YAML's.
        """
        settings = {name: value for name, value in options.items() if value is not None}
        return WorldSize.from_options(**{**self.world, **settings})


def ablation_names() -> list[str]:
    """Return the names of the ablations in `experiments/ablations`."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def load_ablation(source: str) -> Ablation:
    """Load an ablation by its name, or from a YAML file of your own.

    Args:
        source: name of an ablation in `experiments/ablations`, or path of a YAML file. Its
            configurations are paths relative to it, or names in `experiments/configs`.

    Raises:
        UnknownNameError: no such ablation, or a key or variant that is not known.
        FileError: no such file or configuration, or no YAML of an ablation.
        ArgumentError: a value that cannot be used; it names the variant.
    """
    is_path = source.endswith((".yaml", ".yml"))
    if not is_path and source not in ablation_names():
        raise UnknownNameError("ablation", source, ablation_names())
    path = Path(source) if is_path else _folder() / f"{source}.yaml"
    content = _read(path)
    for key in content:
        if key not in _KEYS:
            raise UnknownNameError(f"key of {path}", key, _KEYS)
    if not isinstance(content.get("base"), str) or not isinstance(content.get("variants"), dict):
        remedy = "Write `base: CONFIGURATION` and `variants:` with at least one"
        raise FileError(path, "has no base or no variants", remedy)
    variants = _variants(path, content)
    world = content.get("world") or {}
    for key in world:
        if key not in _WORLD:
            raise UnknownNameError(f"world in {path}", key, _WORLD)
    question = " ".join(str(content.get("question", "")).split())
    return Ablation(source, path.stem, question, variants, world, bool(content.get("worth")))


def apply_overlay(content: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a configuration with values changed by keys with dots.

    Raises:
        ArgumentError: a key inside a value that is no mapping.
    """
    config: dict[str, Any] = yaml.safe_load(yaml.safe_dump(dict(content)))
    for key, value in overlay.items():
        *parents, last = key.split(".")
        node = config
        for parent in parents:
            if node.get(parent) is None:
                node[parent] = {}
            node = node[parent]
            if not isinstance(node, dict):
                raise ArgumentError(key, f"{parent} is {node!r} in the configuration")
        node[last] = value
    return config


def _variants(path: Path, content: Mapping[str, Any]) -> tuple[Variant, ...]:
    common = content.get("common") or {}
    base = Path(content["base"]).stem
    entries = {base: {"config": content["base"]}, **content["variants"]}
    if len(entries) == len(content["variants"]):
        raise ArgumentError(base, "a variant has the name of the base", "Call it otherwise")
    variants = {name: _variant(path, name, entry or {}, content) for name, entry in entries.items()}
    for name, variant in variants.items():
        _check(name, variant, variants, common)
    return tuple(_with_training(variant, variants) for variant in variants.values())


def _variant(path: Path, name: str, entry: Any, content: Mapping[str, Any]) -> Variant:
    if not isinstance(entry, dict) or not _NAME.fullmatch(str(name)):
        raise ArgumentError(f"variant {name}", f"{entry!r} is no mapping, or its name is no word")
    words = {key: entry[key] for key in _WORDS if key in entry}
    overlay = {**(content.get("common") or {}), **entry}
    overlay = {key: value for key, value in overlay.items() if key not in _WORDS}
    for key in overlay:
        if "." not in key or key.partition(".")[0] not in _PARTS:
            raise UnknownNameError(f"variant {name}", key, [*_WORDS, *(f"{p}.…" for p in _PARTS)])
    config = _config(str(words.get("config", content["base"])), path.parent)
    base = Path(content["base"]).stem
    reference = None if name == base else str(words.get("against", base))
    return Variant(name, config, overlay, reference, words.get("trained"), words.get("thin", 1))


def _with_training(variant: Variant, variants: Mapping[str, Variant]) -> Variant:
    """Return a variant with the configuration and overlay of the variant that it is trained as."""
    if variant.training_variant is None:
        return variant
    owner = variants[variant.training_variant]
    overlay = {**owner.overlay, **variant.overlay}
    return replace(variant, config=owner.config, overlay=overlay)


def _check(name: str, variant: Variant, variants: Mapping[str, Variant], common: Any) -> None:
    for other in (variant.reference, variant.training_variant):
        if other is not None and other not in variants:
            raise UnknownNameError(f"variant {name}", other, list(variants))
    subject = f"variant {name}"
    if not isinstance(variant.thin, int) or variant.thin < 1:
        raise ArgumentError(subject, f"thin is {variant.thin!r}", "Give a number of rows, as 2")
    if variant.reference is not None and variants[variant.reference].reference == name:
        raise ArgumentError(subject, f"it and {variant.reference} are compared with each other")
    if variant.training_variant is None:
        return
    owner = variants[variant.training_variant]
    if owner.training_variant or owner.thin > 1 or variant.thin > 1:
        raise ArgumentError(subject, "a training that is used belongs to a variant on its own data")
    changes = {k: v for k, v in variant.overlay.items() if k not in common or common[k] != v}
    wrong = [key for key in changes if not key.startswith("data.")]
    if wrong:
        remedy = "Leave `trained` out, so that it has a training of its own"
        raise ArgumentError(subject, f"{wrong[0]} cannot change after the training", remedy)


def _config(name: str, folder: Path) -> Path:
    path = folder / name
    if name.endswith((".yaml", ".yml")):
        if not path.is_file():
            raise FileError(path, "no such configuration")
        return path
    return config_of(name, config_path("raw").parent)


def _read(path: Path) -> dict[str, Any]:
    return read_mapping(path, f"Known: {', '.join(ablation_names())}")


def _folder() -> Path:
    return Path(str(files("ens10.experiments"))) / "ablations"
