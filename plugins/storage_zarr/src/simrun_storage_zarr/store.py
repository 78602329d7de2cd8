"""Objects by key, in a folder or an object store: the only place where Zarr's files change.

A `put` of one key replaces the whole object in one step: a reader sees the old or the new.
"""

# ruff: noqa: D102 - what the methods do is said in Store
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zarr.abc.store
import zarr.storage

from simrun.durability import sync_directory, write_atomic
from simrun.errors import ConfigError

#: An object, or the parts of one, which is then never in memory as a whole.
Content = bytes | Sequence[bytes]


class Store(ABC):
    """Whole objects by key; keys are paths with slashes."""

    #: For messages.
    where: str

    @abstractmethod
    def put(self, objects: Mapping[str, Content]) -> None:
        """Store objects, each in one step, in any order; they are safe on return."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects that exist."""

    @abstractmethod
    def keys(self) -> set[str]:
        """All keys."""

    @abstractmethod
    def for_reading(self) -> zarr.abc.store.Store:
        """The same as Zarr's own kind of store."""


class Folder(Store):
    """A folder of this machine."""

    def __init__(self, root: Path, durable: bool) -> None:
        self.where = str(root)
        self._root = root
        self._durable = durable

    def put(self, objects: Mapping[str, Content]) -> None:
        for key, data in objects.items():
            path = self._root / key
            self._make(path.parent)
            write_atomic(path, data, self._durable)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self._root / key).unlink(missing_ok=True)  # a .new file may have got its name by now

    def keys(self) -> set[str]:
        files = (path for path in self._root.rglob("*") if path.is_file())
        return {path.relative_to(self._root).as_posix() for path in files}

    def for_reading(self) -> zarr.abc.store.Store:
        return zarr.storage.LocalStore(self._root, read_only=True)

    def _make(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            if self._durable:
                sync_directory(folder.parent)


class Remote(Store):
    """An object store behind fsspec."""

    def __init__(self, filesystem: Any, root: str, url: str, options: Mapping[str, Any]) -> None:
        self.where = url
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._options = dict(options)

    def put(self, objects: Mapping[str, Content]) -> None:
        if objects:
            self._filesystem.pipe(
                {
                    f"{self._root}/{key}": data if isinstance(data, bytes) else b"".join(data)
                    for key, data in objects.items()
                }
            )

    def delete(self, keys: Iterable[str]) -> None:
        if paths := [f"{self._root}/{key}" for key in keys]:
            self._filesystem.rm(paths)

    def keys(self) -> set[str]:
        self._filesystem.invalidate_cache()
        root = self._filesystem._strip_protocol(self._root).lstrip("/")
        try:
            found = self._filesystem.find(self._root)
        except FileNotFoundError:
            return set()
        return {path.lstrip("/")[len(root) + 1 :] for path in found}

    def for_reading(self) -> zarr.abc.store.Store:
        return zarr.storage.FsspecStore.from_url(
            self.where, storage_options=self._options or None, read_only=True
        )


def open_store(
    folder: Path, url: str | None, options: Mapping[str, Any], durable: bool
) -> Folder | Remote:
    """The store of a run.

    Parameters
    ----------
    folder : pathlib.Path
        Where it is without a ``url``.
    url : str or None
        fsspec URL.
    options : mapping
        Keyword arguments of the fsspec file system.
    durable : bool
        Whether a put survives a power cut; an object store's always does.

    Raises
    ------
    ConfigError
        fsspec or the package for this kind of URL isn't installed, or the URL is malformed.
    """
    if url is None:
        return Folder(folder, durable)
    if "://" not in url:
        raise ConfigError(
            f"output.url: {url!r} is no URL",
            "write one, for example s3://bucket/run, or leave it out: the store is then in "
            "output.path",
        )
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        filesystem, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigError(
            f"output.url: {url}: a package is missing: {error}",
            'pip install "simrun-storage-zarr[s3]", or the fsspec package of your store',
        ) from None
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"output.url: {url}: {error}",
            "write a URL that fsspec knows, for example s3://bucket/run; "
            "output.storage_options must fit it",
        ) from None
    if isinstance(filesystem, LocalFileSystem):
        return Folder(Path(root), durable)
    return Remote(filesystem, root, url, options)
