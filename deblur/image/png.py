"""PNG where Pillow falls short: it cuts colours of 16 bits to 8, and it carries few chunks.

Written after the specification, https://www.w3.org/TR/png-3/, of which the numbers in brackets are the sections.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: A photograph's rows repeat nothing but single bytes: a search for more takes three times as long, and saves nothing.
STRATEGY = zlib.Z_RLE

Chunk = tuple[bytes, bytes]


def chunks(f: BinaryIO, names: Sequence[bytes]) -> Iterator[Chunk]:
    """The chunks of a PNG file that have one of these names, as (name, content) [5.3].

    Raises
    ------
    ValueError
        If one of them is cut short, or its checksum is wrong.
    """
    f.seek(len(_SIGNATURE))
    while len(head := f.read(8)) == 8:
        size, name = struct.unpack(">I4s", head)
        if name not in names:
            f.seek(size + 4, 1)
            continue
        content, checksum = f.read(size), f.read(4)
        if checksum != struct.pack(">I", zlib.crc32(name + content)):
            raise ValueError(f"the PNG chunk {name!r} is damaged")
        yield name, content


def with_chunks(content: bytes, more: Sequence[Chunk]) -> bytes:
    """A PNG with these chunks after its header, where all that are carried here may stand [5.6]."""
    at = len(_SIGNATURE) + 25
    return content[:at] + b"".join(map(_framed, more)) + content[at:]


def _framed(chunk: Chunk) -> bytes:
    name, content = chunk
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read_deep(f: BinaryIO, picture: Any, raw: str, key: Any) -> np.ndarray:
    """The samples of a PNG of 16 bits, whose high bytes Pillow has decoded.

    Parameters
    ----------
    f : file
    picture : PIL.Image.Image
        Of this file.
    raw : str
        Pillow's name of the order of samples in the file. With the name of the other byte order it takes the low bytes.
    key : int, tuple of int or None
        The colour that the file names as transparent, which becomes an alpha of 0.

    Returns
    -------
    samples : (M, N, S) ndarray of uint16
    """
    from PIL import Image

    def decoded(order: str) -> np.ndarray:
        f.seek(0)
        again: Any = Image.open(f)
        with again:
            again.tile = [(*again.tile[0][:3], order)]
            return np.array(again)

    if raw == "I;16B":
        samples = np.array(picture).astype(np.uint16)[..., None]
    elif raw == "LA;16B":  # both samples of two bytes, as four of one
        samples = decoded("RGBA").view(">u2").astype(np.uint16)
    else:
        samples = np.array(picture).astype(np.uint16) << 8 | decoded(raw.replace("16B", "16L"))
    if not picture.info.get("interlace"):  # Pillow fills in rows that the file lacks
        needed = len(samples) * (1 + samples[0].nbytes)
        data = b"".join(content for _, content in chunks(f, (b"IDAT",)))
        if len(zlib.decompressobj().decompress(data, needed)) < needed:
            raise ValueError("the PNG was cut short")
    if key is not None:
        opaque = np.where((samples == np.array(key)).all(axis=-1, keepdims=True), 0, 65535)
        samples = np.concatenate([samples, opaque.astype(np.uint16)], axis=-1)
    return samples


def write_deep(samples: np.ndarray) -> bytes:
    """A PNG of 16 bits a sample.

    Parameters
    ----------
    samples : (M, N, S) ndarray of uint16
        S is 1 (grey), 2 (grey, alpha), 3 or 4 (red, green, blue, alpha).

    Returns
    -------
    content : bytes
        Every row is coded as its difference from the row above, which is filter 2 of five [9.2].
    """
    height, width, number = samples.shape
    rows = np.ascontiguousarray(samples, ">u2").view(np.uint8).reshape(height, -1)
    coded = np.pad(np.diff(rows, axis=0, prepend=np.uint8(0)), ((0, 0), (1, 0)), constant_values=2)
    head = struct.pack(">IIBBBBB", width, height, 16, (0, 4, 2, 6)[number - 1], 0, 0, 0)  # the colour type [11.2.1]
    coder = zlib.compressobj(strategy=STRATEGY)
    parts = [(b"IHDR", head), (b"IDAT", coder.compress(coded.tobytes()) + coder.flush()), (b"IEND", b"")]
    return _SIGNATURE + b"".join(map(_framed, parts))
