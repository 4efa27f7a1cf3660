"""The rules of the house: who imports whom, what is light, what is packaged, what is written."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDERS = ("ens10", "metrics", "models", "experiments")  # each may import those to its left
ROOF = "ens10/cli/"
# downstairs only these may reach up, inside their functions: the commands, and the world whose
# truth is drawn from the distributions that scores know
REACHING = (ROOF, "ens10/synthetic/displaced.py")
TORCH = {"torch", "pytorch_lightning", "torchmetrics"}
# the rest is light; in metrics/ the kernels on tensors are files called *_torch.py
WITH_TORCH = re.compile(
    r"ens10/loader/(datamodule|resident|tensors)\.py|metrics/(\w+/)?\w*_torch\.py"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts and not (folder == "ens10" and path.parts[-2] in FOLDERS[1:])
)
BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # importing it is an ImportError
{code}
"""


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def imports(tree, inside=False):
    """(module, whether inside a function, whether relative) of every import that is run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", inside, node.level > 0
            yield from ((f"{node.module}.{alias.name}", inside, False) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:  # for readers and mypy: the order of the house still holds
                yield from ((m, True, r) for m, _, r in imports(ast.Module([line], [])))
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, inside or function)


def called(tree):
    """Names of modules given as text, such as `import_module("ens10.models.heads")`."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"ens10(\.\w+)+", text):
            yield text


def room(module):
    """The folder that a module lies in; None for other people's."""
    parts = module.split(".")
    if parts[0] != "ens10":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else "ens10"


def further_up(module, home):
    """Whether a module lies in a folder that those in `home` may not import."""
    return room(module) is not None and FOLDERS.index(room(module)) > FOLDERS.index(home)


def violations(name, tree):
    """What a file of the house may not do, in words."""
    home = name.split("/")[0]
    for module, inside, relative in imports(tree):
        if relative:
            yield f"{name}: relative import"
        if module.split(".")[0] in FOLDERS[1:]:
            yield f"{name}: {module} by its bare name"
        light = home in ("ens10", "metrics") and not inside and not WITH_TORCH.fullmatch(name)
        if light and module.split(".")[0] in TORCH:
            yield f"{name}: {module} when it is imported"
        if further_up(module, home) and not (name.startswith(REACHING) and inside):
            yield f"{name}: {module} is further up"
    for module in called(tree):
        if further_up(module, home) and not name.startswith(REACHING):
            yield f"{name}: {module} is further up"


def test_imports_flow_one_way():
    assert len(MODULES) > 60
    told = [v for path in MODULES for v in violations(name_of(path), trees()[module_of(path)])]
    assert told == []


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("ens10/a.py", "from ens10.metrics import x", "further up"),
        ("ens10/a.py", "def f():\n    import ens10.models", "further up"),
        ("ens10/a.py", "def f():\n    from ens10 import experiments", "further up"),
        ("ens10/a.py", "if TYPE_CHECKING:\n    from ens10.models import x", "further up"),
        ("ens10/a.py", "import_module('ens10.models.heads')", "further up"),
        ("metrics/a.py", "from ens10.models import x", "further up"),
        ("models/a.py", "class A:\n    from ens10.experiments.training.run import x", "further up"),
        (ROOF, "import ens10.models", "further up"),
        ("models/a.py", "from . import x", "relative"),
        ("models/a.py", "from metrics import x", "bare"),
        ("ens10/a.py", "import torch.nn", "when it is imported"),
        ("metrics/a.py", "try:\n    from torch import nn\nexcept ImportError:\n    pass", "when"),
    ],
)
def test_the_check_sees(name, text, word):
    assert any(word in told for told in violations(name, ast.parse(text)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (ROOF, "def f():\n    from ens10.experiments.training.run import x"),
        ("ens10/a.py", "def f():\n    import torch"),
        ("ens10/a.py", "if TYPE_CHECKING:\n    import torch"),
        ("experiments/a.py", "import torch\nfrom ens10.models import x\nimport ens10.metrics"),
        ("models/a.py", "from ens10.metrics import x\nfrom ens10 import catalog"),
    ],
)
def test_the_check_allows(name, text):
    assert list(violations(name, ast.parse(text))) == []


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "ens10" else ("ens10", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def box(module):
    """The package or module directly inside a folder, such as ens10.grib."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] and parts[1] in FOLDERS[1:] else 2])


@cache
def trees():
    """The syntax tree of each module."""
    return {module_of(path): ast.parse(path.read_text()) for path in MODULES}


def modules_imported(tree):
    """Modules of the house that a module imports, also inside functions or by text."""
    yield from called(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if module in trees() else node.module


def boxes_imported():
    """The boxes that each box imports, at import and inside functions or by text."""
    graph = {}
    for module, tree in trees().items():
        if module.startswith("ens10.cli"):
            continue
        found = {box(name) for name in modules_imported(tree) if name in trees()}
        graph.setdefault(box(module), set()).update(found - {box(module), "ens10"})
    return graph


def test_no_circles_between_packages():
    graph = boxes_imported()
    assert len(graph) > 60
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names them


# the same thing for stores and forecasts; what each family and library has; functions of one name
# whose modules are public
HOMES = {"verify", "crps", "crps_ensemble", "log_score", "mean", "fit", "unpack"}


def test_no_public_name_means_two_things():
    public, homes = set(), {}
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                public |= {
                    one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)
                }
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                homes.setdefault(node.name, set()).add(module)
    twins = ("_torch", "_numpy", "_loops")  # the same function for another library
    several = {
        name
        for name, modules in homes.items()
        if sum(not module.endswith(twins) for module in modules) > 1 and name in public
    }
    assert several - HOMES == set()
    assert HOMES - {"crps_ensemble"} <= several


CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time", "getrusage"}


def called_name(node):
    """The last part of the name of the function that a call calls; "" for other nodes."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))


def reads_clock(node):
    """Whether an expression reads a clock of `time` or `resource`."""
    return any(called_name(part) in CLOCKS for part in ast.walk(node))


def limits(call):
    """The seconds that a call waits at most, where they are written there."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    given += call.args if called_name(call) in ("join", "wait") else []
    given = [getattr(one, "value", None) for one in given]
    return [one for one in given if type(one) in (int, float)]


def impatience(tree):
    """What in a test depends on how busy the machine is, in words."""
    measured = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and reads_clock(node.value):
            measured |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            if names & measured or reads_clock(node):
                yield f"line {node.lineno}: a measured time in an assertion"
        if isinstance(node, ast.Call) and any(seconds < 60 for seconds in limits(node)):
            yield f"line {node.lineno}: a wait of less than a minute"
        if called_name(node) == "settings" and "deadline" not in [k.arg for k in node.keywords]:
            yield f"line {node.lineno}: a deadline of hypothesis"
        if isinstance(node, ast.FunctionDef):
            decorators = [called_name(one) for one in node.decorator_list]
            named = any(isinstance(one, ast.Name) for one in node.decorator_list)
            if "given" in decorators and not named and "settings" not in decorators:
                yield f"line {node.lineno}: a deadline of hypothesis"


def test_no_test_depends_on_how_busy_the_machine_is():
    """A limit ends what hangs, in minutes; a wait that proves an absence is a plain `sleep`."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    told = [f"{name_of(p)}, {v}" for p in tests for v in impatience(ast.parse(p.read_text()))]
    assert told == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("start = time.perf_counter()\nf()\nassert time.perf_counter() - start < 5", "measured"),
        ("spent = process_time() - begun\nassert spent / other > 2", "measured"),
        ("thread.join(10)", "a wait"),
        ("subprocess.run(words, timeout=30)", "a wait"),
        ("process.communicate(timeout=9.5)", "a wait"),
        ("@given(x)\ndef test_it(x):\n    pass", "deadline"),
        ("@settings(max_examples=3)\n@given(x)\ndef test_it(x):\n    pass", "deadline"),
    ],
)
def test_the_check_of_impatience_sees(text, word):
    assert [word in told for told in impatience(ast.parse(text))] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "thread.join(300)\nprocess.wait()\nbarrier = threading.Barrier(8, timeout=PATIENCE)",
        "@settings(deadline=None)\n@given(x)\ndef test_it(x):\n    pass",
        "start = time.perf_counter()\nprint(time.perf_counter() - start)\nassert found",
    ],
)
def test_the_check_of_impatience_allows(text):
    assert list(impatience(ast.parse(text))) == []


def python(*arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("folder", FOLDERS[1:])
def test_a_bare_name_is_refused(folder):
    done = python("-c", f"import {folder}", cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: import this package as ens10.{folder}, not as {folder}"
    )


@pytest.mark.parametrize(
    ("code", "blocked"),
    [
        ("import ens10, ens10.catalog, ens10.errors", [*TORCH, "xarray", "scipy", "eccodes"]),
        (
            "import ens10.store, ens10.convert, ens10.loader, ens10.synthetic; "
            "from ens10.metrics import crps_ensemble, crps_normal; import numpy as np; "
            "assert crps_normal(0.0, 0.0, 2.0) == 2; "
            "crps_ensemble(np.zeros((2, 2)), np.zeros(2), estimator='fair', member_dim=0)",
            TORCH,
        ),
        # what a GPU machine has beside torch is enough for models, scores and batches
        (
            "import ens10.metrics, ens10.models.heads, ens10.models.networks; "
            "from ens10.loader import Batches",
            ["crc32c", "dask", "eccodes", "jsonargparse", "netCDF4", "numcodecs", "zarr"],
        ),
        ("from ens10.cli import main; main(['--help'])", [*TORCH, "xarray"]),
        ("from ens10.cli import main; sys.exit(main(['info']))", [*TORCH, "xarray"]),
    ],
)
def test_light_without(code, blocked, tmp_path):
    done = python("-c", BLOCKED.format(blocked=sorted(blocked), code=code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def packages_of_the_tree():
    for folder in FOLDERS:
        for path in MODULES:
            if name_of(path).startswith(f"{folder}/") and path.name == "__init__.py":
                inner = ".".join(path.parent.relative_to(ROOT).parts)
                yield inner if folder == "ens10" else f"ens10.{inner}"


STUDIES = "ens10.experiments.studies"  # of a checkout, not of the wheel
ALIAS = f"{STUDIES}.reproduce"  # the former name of a package
OF_STUDIES = ("experiments/studies/", "experiments/ablations/", "experiments/configs/heat_")


def test_every_package_is_listed():
    tools = PROJECT["tool"]["setuptools"]
    packages = [n for n in packages_of_the_tree() if not n.startswith(STUDIES) or n == ALIAS]
    assert sorted(tools["packages"]) == sorted(packages)
    assert tools["package-dir"] == {"ens10": "ens10"} | {f"ens10.{f}": f for f in FOLDERS[1:]}
    assert [name_of(p) for p in MODULES if not (p.parent / "__init__.py").is_file()] == []


def test_every_data_file_is_packaged():
    tools = PROJECT["tool"]["setuptools"]

    def matches(key):
        return {
            name_of(path)
            for package, patterns in tools[key].items()
            for pattern in patterns
            for path in (ROOT / package.removeprefix("ens10.")).glob(pattern)
        }

    packed = matches("package-data") - matches("exclude-package-data")
    kept = {
        name
        for name in tracked()
        if name.startswith(tuple(f"{f}/" for f in FOLDERS))
        and not name.endswith(".py")
        and not name.startswith("experiments/results/")  # tables of the project, not of a user
        and not (ROOT / name).is_symlink()
    }
    of_studies = {name for name in kept if name.startswith(OF_STUDIES)}
    assert "ens10/py.typed" in kept
    assert kept - of_studies <= packed
    assert len(of_studies) > 20
    assert not of_studies & packed


def test_the_package_does_not_need_studies():
    found = [
        f"{name}: {module}"
        for name, tree in trees().items()
        if not name.startswith(STUDIES)
        for module in [*(m for m, _, _ in imports(tree)), *called(tree)]
        if module.startswith(STUDIES)
    ]
    assert found == []


def test_the_former_name_of_reproduce_is_an_alias():
    from ens10.experiments.reproduce import command, published

    assert import_module(f"{ALIAS}.command") is command
    assert import_module(f"{ALIAS}.published").load_published is published.load_published


@pytest.mark.parametrize("folder", FOLDERS[1:])
def test_symlinks(folder):
    link = ROOT / "ens10" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder


def test_every_dependency_says_why():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    extras = PROJECT["project"]["optional-dependencies"].values()
    needs = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(need for extra in extras for need in extra if not need.startswith("ens10[")),
    ]
    silent = [n for n in needs if not any(f'"{n}"' in line and "# " in line for line in lines)]
    assert silent == []


def test_one_version():
    import ens10

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["project"]["version"] == ens10.__version__ == citation["version"]
    assert citation["license"] == PROJECT["project"]["license"]


def tracked():
    """Files under version control; the test is of a checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def test_nothing_belongs_to_one_machine():
    machine = re.compile(r"(?<![\w.*-])/(work|root|home|opt|mnt|scratch)/\w")
    registry = re.compile(r"(--|_)(extra-)?index-url|find-links|/simple\b", re.IGNORECASE)
    found = []
    for name in tracked():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue  # figures and GRIB files
        # readers are told where torch's own builds are
        shown = re.sub(r"--(extra-)?index-url https://download\.pytorch\.org\S*", "", text)
        if name != name_of(Path(__file__)):
            found += [
                f"{name}: {m.group()}" for r in (machine, registry) for m in r.finditer(shown)
            ]
    assert found == []
