"""Reads shards as torch.distributed.checkpoint does, but without unpickling whatever their files name."""

from __future__ import annotations

import io
import pickle
from pathlib import PosixPath, WindowsPath
from typing import IO, Any, cast

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.checkpointing.plain_files import plain_values
from greenlove_tracker.vocabulary.checkpoints import is_file_name
from greenlove_tracker.vocabulary.errors import UsageError

# The types that ``.metadata`` holds: they carry values and do nothing.
_TYPES = {
    *(
        (metadata.__name__, name)
        for name in (
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorStorageMetadata",
            "ChunkStorageMetadata",
            "BytesStorageMetadata",
            "TensorProperties",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    (filesystem.__name__, "_StorageInfo"),
    (PosixPath.__module__, "PosixPath"),
    (WindowsPath.__module__, "WindowsPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a type that the file names, where it is one of those that metadata is made of."""
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or (module, name) in _TYPES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


class ShardReader(dcp.FileSystemReader):  # type: ignore[misc]
    """Reads shards from a directory."""

    def read_metadata(self, *_: Any, **__: Any) -> metadata.Metadata:
        """Return which tensors lie where.

        Raises:
            UsageError: where the file holds more than that, names files elsewhere, or is damaged.
        """
        try:
            with (self.path / ".metadata").open("rb") as file:
                found = cast(metadata.Metadata, _MetadataUnpickler(file).load())
            paths = {info.relative_path for info in found.storage_data.values()}
        except Exception as error:  # a damaged pickle may raise any
            raise UsageError(f".metadata of a checkpoint cannot be read: {first_line(error)}") from error
        if not all(map(is_file_name, paths)):
            raise UsageError(".metadata of a checkpoint names files that are none of the checkpoint's")
        return found


class ShardPlanner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
    """Puts shards into a state; a parameter that was never used has none."""

    def __init__(self) -> None:
        super().__init__(allow_partial_load=True)

    def load_bytes(self, read_item: Any, value: IO[bytes]) -> None:
        """Put in what is no tensor, such as a learning rate, written anew: the planner unpickles it."""
        content = plain_values(value, read_item.storage_index.fqn)
        as_saved = io.BytesIO()
        torch.save(content, as_saved)
        super().load_bytes(read_item, io.BytesIO(as_saved.getvalue()))
