"""Protocols and mappings of names by someone else: a value, or one error that names the file."""

import signal

import numpy as np
import pytest
import xarray as xr

from ens10 import prepare
from ens10.errors import Ens10Error, FileError
from ens10.protocol import protocol_of
from ens10.source.names import read_names
from ens10.untrusted import is_file_name, parse_yaml

HEX = "0x" + "f" * 6000  # a number that Python does not print
BASE_60 = "1:" * 4000 + "1"
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"b{n}: &b{n} [{','.join(['*' + ('a' if n == 0 else f'b{n - 1}')] * 9)}]" for n in range(9)
)
MERGES = "a0: &a0 {k: v}\n" + "\n".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)
)
BOTH = {
    "aliases that expand": (ALIASES, "more than 1000000 values"),
    "merges that expand": (MERGES, "is not known|more than 1000000 values"),
    "deep lists": ("test: " + "[" * 3000 + "]" * 3000, "nested too deeply|levels deep"),
    "deep mappings": ("\n".join(" " * n + "a:" for n in range(300)), "levels deep|too deeply"),
    "a call": ("test: !!python/object/apply:os.system ['touch x']", "could not determine a const"),
    "a name": ("test: !!python/name:os.system", "could not determine a constructor"),
    "a tag by a prefix": (
        "%TAG ! tag:yaml.org,2002:python/\n---\ntest: !name:os.system x",
        "could not determine a constructor",
    ),
    "a list in itself": ("&a [*a]", "contains itself"),
    "a float of base 60": (f"test: {BASE_60}.5", "too large"),
    "an impossible date": ("test: 2001-99-99", "not valid YAML"),
    "a huge decimal": ("test: " + "9" * 6000, "not valid YAML"),
    "no UTF-8": (b"test: \xff\xfe", "cannot be read|not valid YAML|decode"),
    "a byte of zero": (b"test: \0", "not valid YAML"),
    "two documents": ("a: 1\n---\nb: 2", "not valid YAML"),
    "a text": ("x", "not a mapping"),
    "keys that are no texts": ("2001-01-01: x", "is not known"),
    "a key with escape codes": ('"\\e[2J\\n": x', r"'\\x1b\[2J\\n' is not known"),
    "a long key": ("k" * 100_000 + ": x", "not valid YAML"),
}
PROTOCOLS = {
    "a huge number": (f"test: {HEX}", "more than 63 bits"),
    "a number of base 60": (f"test: {BASE_60}", "more than 63 bits"),
    "a huge number of members": (f"members: [{HEX}]", "more than 63 bits"),
    "a huge window": (f"efi: {{window: {HEX}}}", "more than 63 bits"),
    "a path": ("name: ../../x", "name: '../../x'"),
    "the folder above": ("name: ..", r"name: '\.\.'"),
    "a hidden folder": ("name: .x", r"name: '\.x'"),
    "a long name": ("name: " + "x" * 5000, "at most 100"),
    "a byte of zero in a name": ('name: "a\\0b"', "letters, digits"),
    "an infinite share": ("test: .inf", "inf"),
    "no number": ("test: .nan", "nan"),
    "other types": ("members: {a: b}", "members: .* is not a list"),
    "a list of choices": ("weighting: [cell]", "weighting .* is not known"),
    "text in place of true": ("masks: 'yes'", "is not true or false"),
    "rules that are a text": ("efi: x", "is not a mapping"),
}
MAPPINGS = {
    "no texts": ("variables: {a: {b: c}}", r"variables: a is \{'b': 'c'\}, not a text"),
    "nothing": ("variables: {a: ~}", "variables: a is None, not a text"),
    "a path": ("variables: {x: ../../t2m}", "'../../t2m' cannot be the name of a variable"),
    "an absolute path": ("truth: {x: /etc/passwd}", "'/etc/passwd' cannot be the name"),
    "the folder above": ("variables: {x: ..}", r"'\.\.' cannot be the name"),
    "a drive": ("variables: {x: 'C:'}", "'C:' cannot be the name"),
    "a huge number": (f"step: {{first: {HEX}}}", "more than 63 bits"),
    "an infinite step": ("step: {first: .inf}", "step.first is inf"),
    "no number": ("step: {first: .nan}", "step.first is nan"),
    "true": ("step: {first: true}", "step.first is True"),
    "a huge window": (f"accumulation: {{a: '{'9' * 400} h'}}", "the window of a is"),
    "a list of groups": ("group: [a]", r"group is \['a'\], not a text"),
}
CASES = [
    *((name, read, *case) for name, case in BOTH.items() for read in (protocol_of, read_names)),
    *((name, protocol_of, *case) for name, case in PROTOCOLS.items()),
    *((name, read_names, *case) for name, case in MAPPINGS.items()),
]


@pytest.mark.parametrize(("name", "read", "text", "message"), CASES)
def test_one_error_that_names_the_file(tmp_path, monkeypatch, name, read, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "theirs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    signal.alarm(300)  # expanded, the aliases are 10^9 values
    with pytest.raises(Ens10Error, match=message) as caught:
        read(path)
    signal.alarm(0)
    error = str(caught.value)
    assert "theirs.yaml" in error
    assert "\n" not in error
    assert [entry.name for entry in tmp_path.iterdir()] == ["theirs.yaml"]


def test_what_is_no_attack_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("test: &years [2016, 2017]\nval: [2015]\nname: my_rules-2.1\n")
    assert protocol_of(path).test == [2016, 2017]
    path.write_text("variables: {1: t2m, x: z500}\nstep: {first: 1, units: months}\n")
    names = read_names(path)
    assert names.variables == {"1": "t2m", "x": "z500"}
    assert (names.first_step, names.step_units) == (1, "months")
    assert parse_yaml("[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("name", ["CON", "aux.nc", "x.", "x ", "t2m~", "ä", "a|b", 'a"b', "a?b"])
def test_names_that_only_windows_refuses_are_names(tmp_path, name):
    """They lead nowhere else here; a store with such a name cannot be copied to Windows."""
    assert is_file_name(name)
    store = prepare(one_variable(name), tmp_path / "s.zarr", workers=1)
    with xr.open_zarr(store, group="sfc", decode_timedelta=False) as dataset:
        assert float(dataset[name].max()) == 7.0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../../x", "/tmp/x", "a\\b", "C:", "a\0b", "x" * 201]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    assert not is_file_name(name)
    with pytest.raises(FileError, match="cannot have this name in a store"):
        prepare(one_variable(name), tmp_path / "in" / "s.zarr", workers=1)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def one_variable(name):
    places = {"latitude": [1.0, 0.0], "longitude": [0.0, 1.0, 2.0]}
    step = xr.Variable("step", [24.0], {"units": "h"})
    coords = {"time": np.array(["2001-01-01"], "M8[ns]"), "step": step, "number": [1, 2], **places}
    values = np.full((1, 1, 2, 2, 3), 7.0, "f4")
    return xr.Dataset({name: (("time", "step", "number", "latitude", "longitude"), values)}, coords)
