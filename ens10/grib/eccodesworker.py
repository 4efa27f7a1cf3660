"""The worker process that calls ecCodes; a script that imports nothing of the package.

`ens10.grib.isolated` runs it with the descriptors of a socket and of a file in memory, and the
paths of Python's modules. Requests and answers are JSON on the socket; a message comes in the file,
and its values go there.
"""

import json
import os
import resource
import signal
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_KEYS = """
    edition dataDate dataTime hdate mars.date perturbationNumber paramId shortName cfVarName
    units typeOfLevel level dataType numberOfForecastsInEnsemble derivedForecast
    percentileValue quantileValue totalNumberOfQuantiles probabilityType
    productDefinitionTemplateNumber typeOfGeneratingProcess significanceOfReferenceTime
    forecastProbabilityNumber expver centre packingType
    bitsPerValue gridType Nj Ni numberOfDataPoints latitudeOfFirstGridPointInDegrees
    latitudeOfLastGridPointInDegrees longitudeOfFirstGridPointInDegrees
    longitudeOfLastGridPointInDegrees alternativeRowScanning iScansNegatively jScansPositively
    jPointsAreConsecutive ijDirectionIncrementGiven iDirectionIncrementInDegrees
    jDirectionIncrementInDegrees stepType indicatorOfUnitOfTimeRange
    indicatorOfUnitForTimeRange startStep endStep
"""
_STEPS = ("startStep", "endStep")  # in seconds, so that no fraction of an hour is lost
_MAX_CACHE = 1 << 28  # bytes; ecCodes caches tables of other centres and versions

Packing = tuple[float, int, int, int]


def serve() -> None:
    """Answer requests of the parent process until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent process only
    connection, shared_fd = Connection(int(sys.argv[1])), int(sys.argv[2])
    sys.path[:] = sys.argv[3:]
    import_module("eccodes")  # before its memory is measured
    initial_space = _address_space()
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return
        address_space = _address_space()
        _limit(address_space, request["memory"])
        try:
            if request["what"] == "keys":
                answer = _read_keys(shared_fd)
            else:
                answer = _read_values(shared_fd, request["size"])
        except Exception as error:  # any error concerns this message only
            answer = {"error": str(error) or type(error).__name__}
        answer["is_full"] = address_space > initial_space + _MAX_CACHE
        connection.send_bytes(json.dumps(answer).encode())


def _address_space() -> int:
    """Return the bytes of address space in use; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def _limit(address_space: int, extra: int) -> None:
    if address_space:
        resource.setrlimit(resource.RLIMIT_AS, (address_space + extra, resource.RLIM_INFINITY))


def _read_keys(shared_fd: int) -> dict[str, Any]:
    import eccodes

    keys: dict[str, Any] = {}
    errors: dict[str, str] = {}
    with os.fdopen(os.dup(shared_fd), "rb") as file:
        file.seek(0)
        handle = eccodes.codes_grib_new_from_file(file, headers_only=True)
    if handle is None:
        return {"error": "ecCodes finds no message"}
    try:
        for key in _KEYS.split():
            try:
                if key in _STEPS:
                    eccodes.codes_set(handle, "stepUnits", "s")
                keys[key] = eccodes.codes_get(handle, key, int if key in _STEPS else None)
            except eccodes.KeyValueNotFoundError:
                continue
            except (eccodes.CodesInternalError, ValueError) as error:
                errors[key] = str(error)
    finally:
        eccodes.codes_release(handle)
    return {"keys": keys, "errors": errors}


def _read_values(shared_fd: int, size: int) -> dict[str, Any]:
    import eccodes

    mark = sys.float_info.max  # outside the range of any field, so it marks gaps unambiguously
    handle = eccodes.codes_new_from_message(os.pread(shared_fd, size, 0))
    try:
        eccodes.codes_set(handle, "missingValue", mark)
        values = eccodes.codes_get_values(handle)
        packing = _packing(handle)
    finally:
        eccodes.codes_release(handle)
    values[values == mark] = float("nan")
    os.pwrite(shared_fd, values, 0)
    return {"values": values.size, "packing": packing}


def _packing(handle: int) -> Packing | None:
    import eccodes

    try:
        reference = float(eccodes.codes_get_double(handle, "referenceValue"))
        keys = ("binaryScaleFactor", "decimalScaleFactor", "bitsPerValue")
        binary, decimal, bits = (int(eccodes.codes_get_long(handle, key)) for key in keys)
        return reference, binary, decimal, bits
    except eccodes.KeyValueNotFoundError:
        return None


if __name__ == "__main__":
    serve()
