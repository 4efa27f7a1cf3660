"""The cards of all configurations: `python tests/model_cards.py` writes docs/cards/ and two tables.

A card is made of the comment at the head of the YAML (what the model is, then lines that begin with
`Source:`, `Published:`, `Our choice:` and `Compared with:`), its settings, the docstrings of its
classes and the kept tables of results. `tests/models/test_model_cards.py` compares them.
"""

import csv
import inspect
import re
import sys
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "models"))
from registered import CONFIGS, CONFIGURED, MODELS, count, instance, work  # noqa: E402

DOCS, CARDS = ROOT / "docs", ROOT / "docs" / "cards"
BEGIN, END = "<!-- made by tests/model_cards.py -->", "<!-- end -->"
TARGETS = {"t2m": "", "z500": "-z500", "t850": "-t850", "tp": "-tp", "si10": "-si10"}
# world: folder of its tables, column of its skill, what the skill is relative to
WORLDS = {
    "physical": ("physical_models", "crpss", "CRPS lower than raw"),
    "displaced": ("displaced", "attained", "way to the best possible"),
    "pointwise": ("models", "attained", "way to the best possible"),
}
LEVEL = (
    "In parentheses: not distinguished from the nearest better value of its column that has none, "
    "or a tie with it, by the verdicts of the comparisons at the end of each table; the p values "
    "of all pairs of a column are corrected by the method of Benjamini and Hochberg."
)
LABELS = ("Source", "Published", "Our choice", "Compared with")
GRID = (46, 96)


def content(name, grid=GRID):
    """The settings of a configuration for a grid, with the variables of ENS-10."""
    from ens10.experiments.training.data_numbers import read_config

    return read_config(CONFIGS[name], grid=grid)


@cache
def header(name):
    """The comment at the head of a YAML: the description, and the text of each label."""
    lines = re.match(r"(?:#.*\n)*", CONFIGS[name].read_text())[0].splitlines()
    found, label = {"": []}, ""
    for line in (line[1:].strip() for line in lines):
        start = next((one for one in LABELS if line.startswith(f"{one}: ")), None)
        label = label if start is None else start
        found.setdefault(label, []).append(line.removeprefix(f"{start}: "))
    return {label: " ".join(words) for label, words in found.items()}


@cache
def built(name, grid=GRID):
    """The model of a configuration."""
    import pytorch_lightning as pl
    import torch

    torch.manual_seed(0)
    return instance(pl.LightningModule, content(name, grid)["model"])


@cache
def one_pass(name, grid=GRID):
    """Million multiply-adds of a forecast of one date; whether the outputs are all zero."""
    model = built(name, grid)
    networks = list(
        getattr(model, "networks", None) or [model.network] * getattr(model, "passes", 1)
    )
    return work(networks, content(name)["data"].get("ensemble") or 10, grid)


def coefficients(name):
    """Coefficients of a statistical method at each point, and those common to all points."""
    from test_statistical_configs import KINDS, POINTS

    fitted = KINDS[name][1]
    per_point, common = divmod(fitted, POINTS) if fitted >= POINTS else (0, fitted)
    # fits of the tests have three inputs; of ENS-10's eleven, each has a mean and a deviation
    with_inputs = name in ("emos_ridge", "emos_boosting", "emos_advection")
    return per_point + (2 * (2 * 8 + 1) if with_inputs else 0), common


@cache
def table(world, target):
    """The rows of a kept table, and none if there is no such table."""
    path = ROOT / "experiments" / "results" / WORLDS[world][0] / f"table{TARGETS[target]}.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def measured(name, world, target):
    """Trainings, CRPS, skill in percent, seconds of the fit, a mark; None if not in the table."""
    rows = [row for row in table(world, target) if row["model"] == name]
    if not rows:
        return None
    column = WORLDS[world][1]
    skill = 100 * mean(float(row[column]) for row in rows) if rows[0][column] else None
    means = (mean(float(row[key]) for row in rows) for key in ("crps", "cpu_seconds"))
    crps, seconds = means
    return len(rows), crps, skill, seconds, any(row["still_improving"] == "1" for row in rows)


def level(name, world, target):
    """Whether a value is not distinguished from a better one of its column (`level_with`)."""
    return any(row.get("level_with") for row in table(world, target) if row["model"] == name)


def gains(name, base, world, target):
    """Least and largest gain on another model with the same seed, in percent of its CRPS."""
    own, other = (
        {row["seed"]: float(row["crps"]) for row in table(world, target) if row["model"] == one}
        for one in (name, base)
    )
    # a method without random numbers has one row on the physical world
    values = [100 * (1 - own[seed] / other.get(seed, other["0"])) for seed in own if other]
    return (min(values), max(values)) if values else None


def described(path):
    """A class's name, and the first sentences of its docstring on one line."""
    module, _, name = path.rpartition(".")
    paragraphs = (inspect.getdoc(getattr(import_module(module), name)) or "").split("\n\n")
    before = [p for p in paragraphs if not re.match(r"(Args|Attributes|Examples|Raises):|\s", p)]
    return f"`{name}`: {' '.join(' '.join(before[:2]).split())}"


def class_paths(settings):
    """Every class of the package that is named in settings, in their order."""
    if isinstance(settings, str):
        return [settings] if re.fullmatch(r"ens10\.models(\.\w+)*\.[A-Z]\w+", settings) else []
    if isinstance(settings, dict):
        settings = list(settings.values())
    return [p for part in settings for p in class_paths(part)] if isinstance(settings, list) else []


def facts(name):
    """The rows of a card's first table."""
    settings, text = content(name), header(name)
    data, given = settings["data"], settings["model"]["init_args"]
    inputs = data.get("inputs")
    listed = " ".join(f"`{one}`" for one in inputs) if inputs else "all surface variables"
    kind = "each member" if data.get("kind") == "members" else "mean and deviation"
    yield from ((label.lower(), text[label]) for label in LABELS[:3] if text.get(label))
    classes = dict.fromkeys(
        class_paths([given.get(key, "") for key in ("network", "head", "method")])
    )
    yield from (("class", described(path)) for path in classes)
    yield "target", f"`{data['target']}`"
    extras = "".join(f", {one.replace('_', ' ')}" for one in data.get("extras", []))
    yield "inputs", f"{kind} of {listed}{extras}"
    if data.get("ensemble"):
        yield "members", str(data["ensemble"])
    if name in CONFIGURED:
        optimizer = given["optimizer"]
        rate = optimizer["init_args"]["lr"]
        epochs = settings["trainer"]["max_epochs"]
        yield "parameters", f"{count(built(name)):,}"
        yield "multiply-adds", f"{three_digits(one_pass(name)[0])} million"
        yield "training", f"{optimizer['class_path'].rpartition('.')[2]}, {rate:g}; {epochs} epochs"
    else:
        per_point, common = coefficients(name)
        told = f"{per_point:,} at each point" if per_point else f"{common} for all points"
        yield "coefficients", told


def results(name):
    """The rows of a card's table of results; with the gain on another model, if one is named."""
    base = header(name).get("Compared with")
    head = ("world", "target", "CRPS", "skill (%)", "fit (s)", "trainings")
    rows = []
    for world, target in product(WORLDS, TARGETS):
        if not (found := measured(name, world, target)):
            continue
        trainings, crps, skill, seconds, improving = found
        told = "–" if skill is None else f"{skill:.1f}{' (+)' if improving else ''}"
        row = (world, target, f"{crps:.4g}", told, f"{seconds:.0f}", str(trainings))
        if base:
            gain = gains(name, base, world, target)
            row += (" to ".join(f"{one:z.1f}" for one in gain) if gain else "–",)
        rows.append(f"| {' | '.join(row)} |")
    return (
        [*table_head((*head, f"gain on `{base}` (%)") if base else head, 2), *rows] if rows else []
    )


def card(name):
    """The text of a card."""
    lines = [f"# `{name}`", "", header(name)[""], "", "| | |", "| --- | --- |"]
    lines += [f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in facts(name)]
    if rows := results(name):
        meaning = "[What the columns mean](../models.md#cards); (+) was still improving."
        lines += ["", meaning, "", *rows]
    if "Members" in str(content(name)["model"]["init_args"].get("head")):
        warning = "[this warning](../models.md#attention)"
        lines += ["", f"Its members depend on each other: read {warning}."]
    lines += ["", f"Settings: [{name}.yaml](../../experiments/configs/{name}.yaml)."]
    return "\n".join(lines) + "\n"


def table_head(titles, texts):
    """The first two lines of a table whose columns after the first few are numbers."""
    marks = ["---"] * texts + ["---:"] * (len(titles) - texts)
    return [f"| {' | '.join(titles)} |", f"| {' | '.join(marks)} |"]


def three_digits(value):
    """A number with three digits."""
    return f"{float(f'{value:.3g}'):,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def skills(name, target="t2m"):
    """Skill on the physical and the displaced world, and seconds of the fit, for a list."""
    rows = [measured(name, world, target) for world in ("physical", "displaced")]
    told = ["–" if not r or r[2] is None else f"{r[2]:.1f}{' (+)' if r[4] else ''}" for r in rows]
    return [*told, f"{rows[0][3]:.0f}" if rows[0] else "–"]


def networks():
    """The table of all networks for docs/models.md."""
    head = ("configuration", "network", "head", "parameters", "multiply-adds (million)")
    yield from table_head((*head, "physical (%)", "displaced (%)", "fit (s)"), 3)
    for name in CONFIGURED:
        given = content(name)["model"]["init_args"]
        head = given["head"] if isinstance(given["head"], str) else given["head"]["class_path"]
        classes = (f"`{p.rpartition('.')[2]}`" for p in (given["network"]["class_path"], head))
        numbers = (f"{count(built(name)):,}", three_digits(one_pass(name)[0]), *skills(name))
        yield f"| [`{name}`](cards/{name}.md) | {' | '.join((*classes, *numbers))} |"


def statistical():
    """The table of all statistical methods for docs/cards_statistical.md."""
    head = ("configuration", "what it is", "coefficients a point")
    yield from table_head((*head, "physical (%)", "displaced (%)", "fit (s)"), 2)
    for name in (name for name in MODELS if name not in CONFIGURED):
        per_point, common = coefficients(name)
        what = re.split(r"(?<=[a-z0-9)])\.(?: (?=[A-Z])|$)", header(name)[""])[0]
        size = f"{per_point:,}" if per_point else f"{common} for all"
        yield f"| [`{name}`](cards/{name}.md) | {what} | {' | '.join((size, *skills(name)))} |"


def sources():
    """The table of sources for docs/cite.md."""
    yield from table_head(("configuration", "source"), 2)
    for name in MODELS:
        if source := header(name).get("Source"):
            yield f"| [`{name}`](cards/{name}.md) | {source} |"


def all_targets(world):
    """The table of all models and targets of a world for the page of its results."""
    targets = [target for target in TARGETS if table(world, target)]
    found = {name: [measured(name, world, target) for target in targets] for name in MODELS}
    found = {name: row for name, row in found.items() if any(row) and name != "raw"}

    def order(name):
        """The best first: by T2m, and then what has another target only."""
        first, *_ = (one for one in found[name] if one)
        return (found[name][0] is None, -first[2])

    yield from table_head(("model", *targets, "fit (s)"), 1)
    for name in sorted(found, key=order):
        values = ("({:.1f})" if level(name, world, one) else "{:.1f}" for one in targets)
        cells = [
            f"{value.format(one[2])}{' (+)' if one[4] else ''}" if one else "–"
            for value, one in zip(values, found[name], strict=True)
        ]
        seconds = f"{found[name][0][3]:.0f}" if found[name][0] else "–"
        link = f"[`{name}`](../../../docs/cards/{name}.md)"
        yield f"| {link} | {' | '.join((*cells, seconds))} |"
    if any(level(name, world, target) for name in found for target in targets):
        yield f"\n{LEVEL}"


def variables():
    """The table of the variables of ENS-10 for docs/data_card.md."""
    from ens10.catalog import VARIABLES

    head = ("kind", "name", "GRIB short name", "paramId", "units", "what")
    yield from table_head(head, 6)
    for v in VARIABLES.values():
        cells = (v.kind, f"`{v.name}`", f"`{v.short_name}`", str(v.param_id), v.units, v.long_name)
        yield f"| {' | '.join(cells)} |"


RESULTS = "../experiments/results"
PAGES = {
    "models.md": networks,
    "cards_statistical.md": statistical,
    "cite.md": sources,
    "data_card.md": variables,
    f"{RESULTS}/physical_models/README.md": partial(all_targets, "physical"),
    f"{RESULTS}/displaced/README.md": partial(all_targets, "displaced"),
    f"{RESULTS}/models/README.md": partial(all_targets, "pointwise"),
}


def page(name):
    """The text of a page with the table of today."""
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n" + "\n".join(PAGES[name]()) + f"\n{END}{rest.partition(END)[2]}"


def main():
    """Write all of them."""
    CARDS.mkdir(exist_ok=True)
    for name in MODELS:
        (CARDS / f"{name}.md").write_text(card(name), encoding="utf-8")
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
