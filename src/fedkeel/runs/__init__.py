"""Run directories: what a run leaves on disk, and how it is read back."""

from fedkeel.runs.directory import (
    RunDirectory,
    read_manifest,
    read_rows,
    read_timings,
    storage,
    sync_directory,
    write_durably,
)

__all__ = [
    "RunDirectory",
    "read_manifest",
    "read_rows",
    "read_timings",
    "storage",
    "sync_directory",
    "write_durably",
]
