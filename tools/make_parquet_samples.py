#!/usr/bin/env python3
"""Writes tests/data/parquet.tar.xz: small Parquet files of every encoding and compression that src/parquet reads.

Usage: tools/make_parquet_samples.py (needs pyarrow 26)
The texts of all of them are those of texts() here, and of the test that reads them.
"""
import io
import pathlib
import tarfile

import pyarrow
from pyarrow import parquet

ARCHIVE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "parquet.tar.xz"
FILES = {}


def texts():
    """Forty rows: every seventh is missing, every fifth is empty, the others repeat themselves in part."""
    return [None if i % 7 == 3 else "" if i % 5 == 4 else f"row {i % 11}: grün, " + "abc " * (i % 4) for i in range(40)]


def table(name="text", nullable=True):
    column = pyarrow.array([t or "" for t in texts()] if not nullable else texts(), pyarrow.string())
    fields = [
        pyarrow.field("id", pyarrow.int64()),
        pyarrow.field("tags", pyarrow.list_(pyarrow.string())),
        pyarrow.field(name, pyarrow.string(), nullable=nullable),
    ]
    ids = pyarrow.array(range(40), pyarrow.int64())
    tags = pyarrow.array([["a", "b"][: i % 3] for i in range(40)], pyarrow.list_(pyarrow.string()))
    return pyarrow.Table.from_arrays([ids, tags, column], schema=pyarrow.schema(fields))


def write(name, data, **options):
    out = io.BytesIO()
    parquet.write_table(data, out, store_schema=False, write_statistics=False, **options)
    FILES[f"parquet/{name}.parquet"] = out.getvalue()


def main():
    for codec in ("none", "snappy", "gzip", "zstd"):
        for version in ("1.0", "2.0"):
            for dictionary in (True, False):
                name = f"{codec}-v{version[0]}-{'dictionary' if dictionary else 'plain'}"
                write(name, table(), compression=codec, data_page_version=version, use_dictionary=dictionary)
    write("groups", table(), compression="snappy", row_group_size=9, data_page_size=64)
    write("required", table(nullable=False), compression="snappy")
    write("content", table("content"), compression="none")
    write("other-name", table("story"), compression="none")
    write("lz4", table(), compression="lz4")
    write("delta", table(), compression="none", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    two = table("story").append_column("title", pyarrow.array(["t"] * 40))
    write("two-texts", two, compression="none")
    write("no-text", table().select(["id", "tags"]), compression="none")
    with tarfile.open(ARCHIVE, "w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(FILES.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
