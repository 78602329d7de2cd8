"""Checksums of data that grows by appending: few of them, however much there is.

The data's ranges of `LEAF` bytes each have a checksum (xxh3-64). Two neighbouring ranges of
equal size become one, whose checksum is that of the two before it, so that n bytes have at most
log2(n / LEAF) + 2 ranges. To go on in another process only the last range, the one that is
shorter than `LEAF`, has to be read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

LEAF = 16 << 20


class Checksums:
    """Of all bytes given to `update` so far.

    Parameters
    ----------
    record : sequence of mapping
        What `record` returned, less the unfinished range, whose bytes are to be given again.
    """

    def __init__(self, record: Sequence[Mapping[str, Any]] = ()) -> None:
        self._ranges = [(int(entry["bytes"]), str(entry["xxh3"])) for entry in record]
        self._open, self._size = xxhash.xxh3_64(), 0

    def update(self, data: memoryview) -> None:
        """Take the next bytes."""
        while data:
            part, data = data[: LEAF - self._size], data[LEAF - self._size :]
            self._open.update(part)
            self._size += len(part)
            if self._size == LEAF:
                self._close()

    def record(self) -> list[dict[str, Any]]:
        """``{"bytes", "xxh3"}`` of each range, in order, as JSON values."""
        unfinished = [(self._size, self._open.hexdigest())] if self._size else []
        return [{"bytes": n, "xxh3": digest} for n, digest in (*self._ranges, *unfinished)]

    def _close(self) -> None:
        size, digest = self._size, self._open.hexdigest()
        while self._ranges and self._ranges[-1][0] == size:
            before = self._ranges.pop()[1]
            digest = xxhash.xxh3_64(bytes.fromhex(before + digest)).hexdigest()
            size *= 2
        self._ranges.append((size, digest))
        self._open, self._size = xxhash.xxh3_64(), 0


def finished(record: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The ranges of a record that no further byte changes, but by joining them."""
    return record[:-1] if record and record[-1]["bytes"] < LEAF else record
