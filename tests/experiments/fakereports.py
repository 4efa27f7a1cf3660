"""Runs of several targets and lead times with their predictions, and pages of them."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from fakeruns import MODELS, provenance_of, training_log, world, write_run

from ens10.experiments.reporting.assembly import assemble
from ens10.experiments.reporting.diagnostics import diagnose
from ens10.experiments.reporting.groups import read_groups
from ens10.metrics import score_states

VOID = {"meta", "img", "br", "link", "input", "hr"}
CONFIG = "data:\n  store: /somebody/world.zarr\n  target: t2m\n  cache: null\n"


def write_target(folder, target="t2m", step=48, names=("raw", *MODELS), **options):
    """Scored runs of one target and lead, all but the optimum with predictions."""
    truth, forecasts = world(**options)
    found = {}
    for name in names:
        known = provenance_of(name) | {"target": target, "step": step}
        log = training_log() if name == "unet" else None
        forecast = forecasts[name].assign_coords(step=((), float(step), {"units": "h"}))
        states = score_states(forecast, truth.assign_coords(step=forecast["step"]))
        found[name] = write_run(folder / f"{target}-{step}" / name, states, known, log)
        (found[name] / "config.yaml").write_text(CONFIG)
        if name != "optimum":
            store = forecast.assign(truth=truth).drop_encoding()
            store.to_zarr(found[name] / "predictions.zarr", zarr_format=3, consolidated=False)
    return found


def page_of(folders, reference="raw", title="Test world"):
    """The page's HTML, without the figures that a report writes beside it."""
    groups = read_groups(list(folders), reference)
    found = []
    for group in groups:
        made = {
            run.name: diagnose(group.folders[run.name], run.states["time"].to_numpy())
            for run in group.runs
        }
        found.append({name: one for name, one in made.items() if one is not None})
    return assemble(title, groups, found)


class Page(HTMLParser):
    """Checks nesting, and collects what a test asks for."""

    def __init__(self, text):
        super().__init__()
        self.source = text
        self.open, self.tags, self.cells, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def section(self, heading):
        """The HTML below a heading of the second level."""
        return re.split("<h2", self.source.split(f">{heading}</h2>")[1])[0]

    def table(self, first):
        """Head and lines of the table whose first heading, second heading are these."""
        start = next(n for n, line in enumerate(self.cells) if line[: len(first)] == list(first))
        lines = []
        for line in self.cells[start + 1 :]:
            if len(line) != len(self.cells[start]):
                break
            lines.append(line)
        return self.cells[start], {line[0]: line for line in lines}


def script_of(text):
    """The page's script, and whether the page's own policy lets it run."""
    (script,) = re.findall(r"<script>(.*)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, f"script-src 'sha256-{digest}'" in text
