"""The folder that keeps the rows of a comparison as they are done, so that an interrupted one can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .. import image
from .findings import Row
from .pictures import names


class Store:
    """A folder that holds the rows of a comparison, one JSON line each, and their pictures.

    A line is either ``{"session": ...}`` or ``{"row": ...}``. It is appended when its row is done; a last line that
    was cut off by a crash is dropped.
    """

    def __init__(self, folder: str | Path, resume: bool, overwrite: bool) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder} is a file; name a folder for the comparison")
        self._file = self.folder / "rows.jsonl"
        self._pictures = self.folder / "pictures"
        self.sessions: list[dict[str, Any]] = []
        self._rows: dict[str, Row] = {}
        if self._file.exists():
            if resume:
                self._load()
            elif overwrite:
                self._file.unlink()
            else:
                raise FileExistsError(
                    f"{self._file} is there already: go on with it (resume=True, --resume), begin afresh "
                    "(overwrite=True, --force), or name another folder"
                )
        self._pictures.mkdir(parents=True, exist_ok=True)

    def _load(self) -> None:
        lines = self._file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if "session" in entry:
                    self.sessions.append(entry["session"])
                else:
                    row = Row(**entry["row"])
                    row.history = [(i, r) for i, r in row.history]
                    # What a session could not run may run now; what it measured stands.
                    if row.status not in ("not installed", "refused"):
                        self._rows[row.key] = row
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, json.JSONDecodeError) and number == len(lines) > 1:
                    lines.pop()  # cut off by a crash
                    break
                raise ValueError(
                    f"line {number} of {self._file} is no row of this version ({error}); begin afresh (--force) or "
                    "name another folder"
                ) from error
        self._file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _append(self, entry: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as f:
            f.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")

    def add_session(self, session: dict[str, Any]) -> None:
        self._append({"session": session})

    def add(self, row: Row, pictures: dict[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            image.write(self._path(name), picture, overwrite=True)
        self._append({"row": row.to_dict()})

    def kept(self, key: str) -> Row | None:
        """The row with this key, if it and its picture are there."""
        row = self._rows.get(key)
        missing = row is not None and row.status == "ok" and not self._path(names(key)[0]).exists()
        return None if missing else row

    def pictures(self, row: Row) -> dict[str, np.ndarray]:
        paths = {name: self._path(name) for name in names(row.key)}
        return {name: image.read(path, as_float=False) for name, path in paths.items() if path.exists()}

    def _path(self, name: str) -> Path:
        return self._pictures / f"{name}.png"
