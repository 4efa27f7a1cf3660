"""All code on the pages is run by a test, or named with the reason and parsed by what would run it.

Which tests run which page stands in docblocks.py.
"""

import re
import shlex
import tomllib
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise

import pytest
import pytorch_lightning as pl
import yaml
from docblocks import (
    NOT_CODE,
    NOT_RUN,
    PAGES,
    ROOT,
    RUN_BY,
    YAML_BY,
    blocks,
    code,
    commands,
    is_run,
    python,
    yamls,
)
from packaging.requirements import Requirement

from ens10 import cli, command_options
from ens10.experiments.forecasts.products import product_types
from ens10.models.parallel import SpatialStrategy
from ens10.options import flags_of
from ens10.protocol import protocol_of
from ens10.usage import Parser, command_parser

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LIGHTNING = ("fit", "validate", "test", "predict")
SPANS = [
    (page, " ".join(span.split()))
    for page in PAGES
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", (ROOT / page).read_text())
]
TOLD = sorted({(page, span) for page, span in SPANS if span.startswith("ens10 ")})
ALL = [(page, line) for page in PAGES for block in code(page) for line in block.lines]


def test_each_page_with_code_is_run_or_named():
    for page in PAGES:
        held = [line for block in code(page) for line in block.lines]
        reasons = set(NOT_RUN.get(page, ()))
        if page == "docs/many_devices.md":  # its Python is run below
            held = [line for line in held if not line.startswith("trainer = ")]
        left = [] if page in RUN_BY else [line for line in held if is_run(page, line)]
        assert not left, f"{page}: name in docblocks.py which test runs it, or why none does"
        unused = {start for start in reasons if not any(line.startswith(start) for line in held)}
        assert not unused, f"{page} no longer has {unused}"


@pytest.mark.parametrize(("page", "test"), [*RUN_BY.items(), *YAML_BY.items()])
def test_the_tests_that_run_a_page_read_it(page, test):
    assert page.rsplit("/", 1)[-1] in (ROOT / test).read_text()


def test_what_is_no_code_is_still_there():
    for page, starts in NOT_CODE.items():
        found = [block.text for block in blocks(page)]
        assert [start for start in starts if not any(t.startswith(start) for t in found)] == []


def test_blocks_are_found():
    assert {block.language for block in code("docs/use.md")} == {"", "python"}
    assert len(commands("docs/use.md")) >= 13
    for page in ("README.md", "docs/use.md"):
        assert len(python(page)) == (ROOT / page).read_text().count("```python")
    (torchrun,) = [b for b in code("docs/many_devices.md") if b.text.startswith("torchrun")]
    assert len(torchrun.lines) == 1  # joined at its backslashes
    assert "--trainer.strategy.lat 4" in torchrun.lines[0]


def parsed(command):
    """What `ens10` makes of the words of a command, which is not run."""
    return cli.parse_command(command)


COMMANDS = [words for page in PAGES for run in (True, False) for words in commands(page, run=run)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_commands_of_all_blocks_are_understood(command):
    if command[0] in LIGHTNING:  # their options: where they are run, and test_many_devices_page.py
        assert {"--run"} <= set(command)
        configs = [b for a, b in pairwise(command) if a == "--config"]
        shipped = [path for path in configs if path.startswith("experiments/")]
        assert all((ROOT / path).is_file() for path in shipped)
    else:
        assert callable(parsed(command)[0].run)


MODULES = [line for _, line in ALL if " -m ens10" in line]


class _Understood(Exception):  # noqa: N818
    """A command line was parsed."""


@pytest.mark.parametrize("line", MODULES)
def test_the_modules_of_all_blocks_are_understood(line, monkeypatch):
    """Their own parsers take every word; what follows is not done."""
    understood = Parser.parse_args

    def parse(self, words):
        raise _Understood(understood(self, words))

    monkeypatch.setattr(Parser, "parse_args", parse)
    words = shlex.split(line)
    start = words.index("-m") + 1
    module = import_module(words[start])
    if hasattr(module, "__path__"):
        module = import_module(f"{words[start]}.__main__")
    with pytest.raises(_Understood) as stopped:
        module.main(words[start + 1 :])
    assert vars(stopped.value.args[0])


def test_there_are_modules():
    assert len(MODULES) >= 4


@pytest.mark.parametrize(("page", "line"), [x for x in ALL if x[1].startswith("pip ")])
def test_what_pip_is_to_install(page, line):
    project = PYPROJECT["project"]
    words = shlex.split(line, comments=True)
    assert words[:2] == ["pip", "install"]
    if words[2] == "-e":
        words[2:] = words[3:]
    if "--group" in words:
        assert words[words.index("--group") + 1] in PYPROJECT["dependency-groups"]
    wheel = f"dist/{project['name']}-{project['version']}-py3-none-any.whl"
    text = words[2].replace(wheel, ".")
    assert text.startswith("."), "no index has a release"
    wanted = Requirement(re.sub(r"^\.", project["name"], text))  # "." is the clone
    assert wanted.extras <= set(project["optional-dependencies"])


def test_no_line_installs_a_release():
    """No index has one: pages, notebooks and messages install from a clone, a wheel or by name."""
    folders = ("docs", "notebooks", "ens10", "metrics", "models", "experiments")
    paths = [ROOT / "README.md", *(p for name in folders for p in (ROOT / name).rglob("*"))]
    texts = [p for p in paths if p.suffix in (".md", ".ipynb", ".py", ".yaml", ".j2")]
    assert len(texts) > 500
    assert [
        p for p in texts if re.search(r"install\b.*['\" ]ens10(\[|['\" ]|$)", p.read_text())
    ] == []


def test_the_extras_and_groups_of_the_page():
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(PYPROJECT["project"]["optional-dependencies"])
    groups = PYPROJECT["dependency-groups"]
    assert groups["dev"] == [{"include-group": "test"}, {"include-group": "docs"}]
    assert {name: groups[name] for name in ("test", "docs")} == {
        name: [f"ens10[{name}]"] for name in ("test", "docs")
    }


@pytest.mark.parametrize(("page", "line"), [x for x in ALL if x[1].startswith("make ")])
def test_what_make_is_to_do(page, line):
    assert re.search(rf"^{line.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*tensorboardX:UserWarning")  # Lightning's, of its own logger
def test_the_trainer_of_many_devices():
    (block,) = [b for b in code("docs/many_devices.md") if b.text.startswith("trainer = ")]
    names = {"pl": pl, "SpatialStrategy": SpatialStrategy}
    exec(block.text, names)
    assert isinstance(names["trainer"].strategy, SpatialStrategy)


def test_yaml_is_read_by_a_test():
    held = {page for page in PAGES if yamls(page)}
    assert held == set(YAML_BY), "name in docblocks.py which test reads it"


def test_the_protocol_of_traps_md():
    (text,) = yamls("docs/traps.md")
    given = yaml.safe_load(text)
    assert protocol_of(given) != protocol_of("clean")


@pytest.mark.parametrize("block", blocks("docs/cite.md"), ids=lambda block: str(block.line))
def test_bibtex_is_well_formed(block):
    assert block.language == "bibtex"
    kind, fields = re.fullmatch(r"@(\w+)\{\w+,\n(.*)\n\}\n", block.text, re.DOTALL).groups()
    text = re.sub(r"\n {4,}", " ", fields)
    held = dict(re.fullmatch(r"  (\w+) += \{(.*)\},?", line).groups() for line in text.splitlines())
    assert all(value.count("{") == value.count("}") for value in held.values())
    needed = {"inproceedings": {"author", "title", "booktitle", "year"}}
    assert needed.get(kind, {"author", "title", "version"}) <= set(held)


@pytest.mark.parametrize(("page", "span"), TOLD)
def test_commands_within_a_line_exist(page, span):
    """`ens10 fit ... --data.store STORE`: the command, and each option that is named."""
    words = span.replace("|", " ").split()[1:]
    if words[0].isupper() or words[0] == "...":
        return
    names = words[0].split("/")
    assert set(names) <= set(cli.COMMANDS)
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    if names[0] in LIGHTNING:
        own = re.compile(
            r"--(config|run|resume|quiet|help|processor-time|step-memory|data\..*|trainer\..*|model\..*)"
        )
        assert all(own.fullmatch(option) for option in options)
    else:
        parser = command_parser(names[0])
        cli.COMMANDS[names[0]].add_options(parser)
        assert set(options) <= {o for action in parser._actions for o in action.option_strings}


def test_options_within_a_line_are_somebody_s():
    folders = (ROOT / "experiments", ROOT / "benchmarks", ROOT / "tests" / "reliability")
    sources = [*ROOT.glob("ens10/**/*.py"), *(path for f in folders for path in f.rglob("*.py"))]
    text = "".join(path.read_text() for path in sources)
    declared = [one for one in vars(command_options).values() if is_dataclass(one)]
    flags = {flag for one in (*declared, *product_types()) for flag in flags_of(one).values()}
    found = {m[0] for _, span in SPANS if (m := re.match(r"--[a-z][a-z-]+(?= |$)", span))}
    assert len(found) > 20
    assert [
        option for option in sorted(found) if f'"{option}"' not in text and option not in flags
    ] == []
