"""Store the pictures of a row in 8 bits, and each completed row in a folder, so that a run can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .. import image
from ..errors import naming
from .cases import Case
from .findings import Row, Settings


def residual_scale(case: Case) -> float:
    """Return the residual that the pictures of a case show as white (and, if negative, as black)."""
    return 4 * max(case.sigma, 1 / 255)


def as_8_bit(picture: np.ndarray) -> np.ndarray:
    """Return a picture on [0, 1], clipped and rounded to 8 bits."""
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def names(key: str) -> tuple[str, str]:
    """Return the names of the restored picture and of the residual, for the key of a row."""
    return f"{key}-restored", f"{key}-residual"


def shown(key: str, case: Case, restored: np.ndarray, residual: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the pictures of a row by their names, in 8 bits."""
    pictures = {names(key)[0]: as_8_bit(restored)}
    if residual is not None:
        pictures[names(key)[1]] = as_8_bit(0.5 + 0.5 * residual / residual_scale(case))
    return pictures


class Store:
    """A folder with the rows of a comparison, one line of JSON each, and their pictures.

    A line is either ``{"session": ...}`` or ``{"row": ...}``. It is appended when its row is complete. A last line that
    a crash cut off is dropped.
    """

    def __init__(self, folder: str | Path, settings: Settings) -> None:
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file; name a folder for the comparison")
        self._file, self._pictures = folder / "rows.jsonl", folder / "pictures"
        self.sessions: list[dict[str, Any]] = []
        self._rows: dict[str, Row] = {}
        if self._file.exists():
            if settings.resume:
                self._load()
            elif settings.overwrite:
                self._file.unlink()
            else:
                raise FileExistsError(
                    f"{self._file} exists: continue with it (resume=True, --resume), replace it (overwrite=True, "
                    "--force), or name another folder"
                )
        elif settings.resume:
            raise FileNotFoundError(f"{folder} holds no comparison to resume: name its folder, or leave out --resume")
        self._pictures.mkdir(parents=True, exist_ok=True)

    def _load(self) -> None:
        lines = self._file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                if "session" in entry:
                    self.sessions.append(entry["session"])
                    continue
                row = Row(**entry["row"])
                row.history = [(i, r) for i, r in row.history]
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, json.JSONDecodeError) and number == len(lines) > 1:
                    lines.pop()  # cut off by a crash
                    break
                raise ValueError(
                    f"line {number} of {self._file} is not a row of this version ({error}); replace it (--force) or "
                    "name another folder"
                ) from error
            # A method that could not run may run now; measured rows stay.
            if row.status not in ("not installed", "refused"):
                self._rows[row.key] = row
        self._file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def append(self, **entry: Any) -> None:
        """Append a line: the record of a session, or a row."""
        with naming(self._file, then="all lines before are whole"), self._file.open("a", encoding="utf-8") as f:
            f.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")

    def add(self, row: Row, pictures: dict[str, np.ndarray]) -> None:
        """Append a row, and write its pictures."""
        for name, picture in pictures.items():
            image.write(self._path(name), picture, overwrite=True)
        self.append(row=row.to_dict())

    def get(self, key: str) -> tuple[Row, dict[str, np.ndarray]] | None:
        """Return the row with this key and its pictures; None if the row or its restored picture is missing."""
        row = self._rows.get(key)
        pictures = {n: image.read(self._path(n), as_float=False) for n in names(key) if self._path(n).exists()}
        return None if row is None or (row.status == "ok" and names(key)[0] not in pictures) else (row, pictures)

    def _path(self, name: str) -> Path:
        return self._pictures / f"{name}.png"
