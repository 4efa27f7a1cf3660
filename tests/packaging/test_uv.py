"""`uv sync` finds versions that agree: with the group `dev`, and without it with all extras."""

import pytest
from environments import Environment, removed, run

pytestmark = pytest.mark.slow
GROUPS = {"pytest", "mypy", "mkdocs"}  # from the extras `test` and `docs`, which `dev` has


@pytest.fixture(scope="module")
def uv(tmp_path_factory):
    with removed(Environment(tmp_path_factory.mktemp("uv") / "environment")) as environment:
        environment.install("uv")
        yield environment.bin / "uv"


@pytest.mark.parametrize(("options", "found"), [("", GROUPS), ("--no-dev --extra all", set())])
def test_versions_agree(uv, project, tmp_path, options, found):
    """What docs/install.md says of uv; nothing is downloaded but what tells the versions."""
    command = (uv, "--no-cache", "sync", "--dry-run", "--project", project, *options.split())
    names = _names(run("sh", "-c", '"$@" 2>&1', "sh", *command, cwd=tmp_path))
    assert {"ens10", "torch", "xarray", "zarr"} <= names
    assert names & GROUPS == found


def _names(said):
    """The packages of the lines ` + NAME==VERSION`, as uv would install them."""
    lines = (line.strip() for line in said.splitlines())
    return {line[2:].partition("==")[0].partition(" ")[0] for line in lines if line[:2] == "+ "}
