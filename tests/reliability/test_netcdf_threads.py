"""Files of netCDF are read while others are closed; test_lowest.py tries the oldest libraries."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("netcdfthreads.py")


@pytest.mark.slow
def test_forgotten_files_close_while_threads_read(tmp_path):
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
