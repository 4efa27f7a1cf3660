"""The commands of docs/many_devices.md are understood as they stand on the page."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from ens10.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "many_devices.md").read_text().replace("\\\n", " ")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"(ens10 (?:fit|plan) .+)", PAGE)]


def test_the_page_has_its_commands():
    assert [command[0] for command in COMMANDS] == ["plan", *4 * ["fit"]]


@pytest.mark.parametrize("command", COMMANDS[1:], ids=lambda c: c[-1])
def test_options_are_those_of_the_strategy(command, capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    with pytest.raises(SystemExit) as stop:
        main([*command, "--print_config"])
    assert stop.value.code in (0, None)
    trainer = yaml.safe_load(capsys.readouterr().out)["trainer"]
    assert trainer["strategy"]["class_path"] == "ens10.models.parallel.SpatialStrategy"
    assert trainer["devices"] in (4, "4")
    assert trainer["strategy"]["init_args"]["lat"] in (2, 4)
