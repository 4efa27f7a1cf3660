"""Messages as ecCodes alone reads them."""

import eccodes

KEYS = ("shortName", "paramId", "dataDate", "dataTime", "step", "number", "level", "typeOfLevel",
        "centre", "dataType", "bitsPerValue", "edition", "missingValue", "bitmapPresent",
        "packingType", "stream")  # fmt: skip


def messages(*paths):
    """(keys, values (rows x columns,)) of every message, by ecCodes alone."""
    for path in paths:
        with path.open("rb") as file:
            while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                keys = {key: eccodes.codes_get(handle, key) for key in KEYS}
                yield keys, eccodes.codes_get_values(handle)
                eccodes.codes_release(handle)
