"""Names and answers from outside cannot forge, hide or colour a line of ens10."""

import io
import shutil
import socketserver
import sys
import threading
import warnings

import numpy as np
import pytest
import xarray as xr

from ens10.cli import main
from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError, printable

HOSTILE = "a\x1b[2J\r\nens10: done\u202etxt"
SHOWN = r"a\x1b[2J\r\nens10: done\u202etxt"


def one_line(text):
    """The lines of a text, none of which hides or forges anything."""
    lines = text.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("ens10: done") for line in lines)
    return lines


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (HOSTILE, SHOWN),
        ("é 気温 ± 1 K", "é 気温 ± 1 K"),
        ("two\u2028lines", r"two\u2028lines"),
        ("no\xa0break\x07\x9b", r"no\xa0break\x07\x9b"),
        ("not UTF-8 \udcff", r"not UTF-8 \udcff"),
        ("back\\slash [red]", "back\\slash [red]"),
    ],
)
def test_what_is_shown(raw, shown):
    assert printable(raw) == shown
    assert printable(shown) == shown  # once is enough
    assert printable(f"{raw}\nmore", keep="\n") == f"{shown}\nmore" or "\n" in raw


def test_errors_and_notes_are_printable():
    errors = (
        FileError(HOSTILE, "bad", "Do"),
        ArgumentError("inputs", HOSTILE),
        MissingDataError("f", [HOSTILE]),
        DataNote(HOSTILE),
    )
    for error in errors:
        assert SHOWN in str(error)
        assert str(error).isprintable()
    assert errors[0].path == HOSTILE  # what a program compares stays


def test_a_note_is_one_line(capsys):
    from ens10.cli import _notes_as_lines

    with _notes_as_lines():
        warnings.warn(HOSTILE, DataNote, stacklevel=1)
    assert capsys.readouterr().err == f"ens10: {SHOWN}\n"


def test_a_file_of_that_name(tmp_path, capsys):
    path = tmp_path / HOSTILE
    path.write_bytes(b"no GRIB")
    assert main(["inspect", str(path)]) == 1
    captured = capsys.readouterr()
    assert SHOWN in captured.out + captured.err
    one_line(captured.out)
    assert len(one_line(captured.err)) <= 1


def test_a_variable_and_its_units(tmp_path, capsys):
    path = tmp_path / "forecast.nc"
    coords = {
        "time": np.array(["2001-01-01"], "M8[ns]"), "number": [1, 2], "latitude": [50.0, 49.0],
        "longitude": [0.0, 1.0, 2.0],
    }  # fmt: skip
    values = np.full((1, 2, 2, 3), 280.0, np.float32)
    attributes = {"units": HOSTILE, "standard_name": HOSTILE, "long_name": "[red]x[/red]"}
    field = xr.DataArray(values, coords, list(coords), attrs=attributes)
    field.to_dataset(name="a\u202etxt").to_netcdf(path)  # netCDF refuses control characters
    main(["inspect", str(path)])
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert r"a\u202etxt" in shown
    one_line(captured.out)
    one_line(captured.err)


def test_a_name_is_no_markup_in_a_table(capsys):
    from ens10.cli.output import print_rows
    from ens10.inspection import Row

    row = Row("[b]t[/b] :smile: \x1b[2J", level="\n", dates=1, units="[red]K", status="ok")
    print_rows(HOSTILE, [row])
    out = capsys.readouterr().out
    one_line(out)
    assert r"[b]t[/b] :smile: \x1b[2J" in out
    assert "[red]K" in out
    assert SHOWN in out


def test_bad_usage_with_such_an_option(capsys):
    with pytest.raises(SystemExit):
        main(["inspect", "x", "--a\x1b[2J\r\nens10:done\u202e"])
    assert len(one_line(capsys.readouterr().err)) == 2


@pytest.fixture
def hostile_server():
    """A server whose words after the status code, which are its own choice, hide others."""
    answer = b"HTTP/1.0 403 a\x1b[2J\xe2\x80\xaetxt\r\nContent-Length: 0\r\n\r\n"

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_reason_of_a_server(hostile_server, tmp_path, capsys):
    words = ["--kind", "sfc", "--dates", "0104", "--base", hostile_server]
    assert main(["download", str(tmp_path / "d"), *words]) == 1
    captured = capsys.readouterr()
    assert "403" in captured.err
    one_line(captured.out + captured.err)


def test_markdown_latex_and_pages():
    from ens10.experiments.reporting.pages import _environment
    from ens10.experiments.scoring.writers import columns_of, latex_of, markdown_of

    columns = columns_of([HOSTILE, "x"], [[HOSTILE, "1 | 2"]])
    text = markdown_of(columns)
    assert len(one_line(text)) == 3
    assert "\x1b" not in latex_of(columns, [HOSTILE])
    page = _environment().from_string("<p>{{ name }}</p>").render(name=f"<b>{HOSTILE}")
    assert page == "<p>&lt;b&gt;" + printable(HOSTILE, keep="\n") + "</p>"


def test_a_progress_bar(monkeypatch):
    from ens10.progress import track

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track([1, 2], f"[red]{HOSTILE}", 2)) == [1, 2]
    assert "\x1b[2J" not in stream.getvalue()
    assert shutil.get_terminal_size().columns > 0
