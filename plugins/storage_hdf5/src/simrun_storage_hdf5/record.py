"""What a commit's record says, and where the files are that it names.

``{"format", "step", "final": {name, bytes, rows, xxh3} or None, "segments": [{name, bytes,
metadata_xxh3, rows, xxh3}, …]}``: the committed samples are those of ``final`` (the merged file
of a run that had finished), then those of the segments; ``rows`` and a segment's ``xxh3`` have
an entry for each column.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simrun.errors import SinkError

FORMAT = 1
PROBES = "probes.h5"
SEGMENTS = "segments"
EMPTY: Mapping[str, Any] = {"format": FORMAT, "step": 0, "final": None, "segments": []}
HINT = "restore the file from a backup, or start anew with another output.path"


def check_format(record: Mapping[str, Any]) -> None:
    """Refuse the record of another version."""
    if record.get("format") != FORMAT:
        raise SinkError(
            f"the samples are in format {record.get('format')!r} of the hdf5 sink, this is "
            f"format {FORMAT}",
            "use the version of simrun-storage-hdf5 that wrote them",
        )


def rows_of(record: Mapping[str, Any], column: str) -> int:
    """Number of committed rows of a column."""
    parts = [record["final"]] if record["final"] else []
    return sum(part["rows"][column] for part in (*parts, *record["segments"]))


def final_path(directory: Path, final: Mapping[str, Any]) -> Path:
    """Where the merged file is: among the segments, or in its last place."""
    path = directory / SEGMENTS / str(final["name"])
    return path if path.exists() else directory / PROBES


def check_final(directory: Path, final: Mapping[str, Any]) -> Path:
    """The merged file, if it has the size that was committed."""
    path = final_path(directory, final)
    size = path.stat().st_size if path.exists() else None
    if size != final["bytes"]:
        found = "is missing" if size is None else f"has {size} bytes"
        raise SinkError(f"{path} {found}; {final['bytes']} bytes were committed", HINT)
    return path
