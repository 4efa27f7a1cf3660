"""What README.md tells a newcomer to type works, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest

from ens10.cli import main

TOP = Path(__file__).parents[1]
TEXT = (TOP / "README.md").read_text()
COMMANDS = [
    shlex.split(line.split("#")[0])[1:]
    for line in re.findall(r"^    (ens10 .+)$", TEXT, re.MULTILINE)
]
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_readme_holds_what_is_tested_here():
    assert len(COMMANDS) >= 8
    assert len(BLOCKS) >= 2


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    local = [target for target in targets if "://" not in target]
    assert local
    assert [target for target in local if not (TOP / target).exists()] == []


@pytest.mark.slow
def test_commands_and_code_of_the_readme_run(tmp_path, monkeypatch, capsys):
    for folder in ("experiments", "tests"):
        (tmp_path / folder).symlink_to(TOP / folder)
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if not any("seas5" in word for word in command):  # its data are not in the repository
            assert main(command) == 0, command
    capsys.readouterr()
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)
    assert names["score"].dims == ("time", "step", "latitude", "longitude")
    assert float(names["score"].mean()) > 0
    assert (tmp_path / "report" / "index.html").exists()
