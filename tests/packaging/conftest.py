import sys

import pytest
from environments import Environment, copy_of_the_project, removed, run


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A clean copy of the project."""
    return copy_of_the_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def distributions(tmp_path_factory, project):
    """Folder with the sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, project)
    return out


@pytest.fixture(scope="session")
def wheel(distributions):
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(distributions):
    (path,) = distributions.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory, sdist):
    """An environment with a regular install of the source distribution, and torch."""
    folder = tmp_path_factory.mktemp("regular")
    with removed(Environment(folder, behind=True)) as environment:
        environment.install("--no-deps", sdist)
        yield environment
