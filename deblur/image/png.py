"""Read and write PNG where Pillow cannot: it reduces colours of 16 bits to 8, and it keeps few chunks.

Numbers in brackets are sections of the specification, https://www.w3.org/TR/png-3/.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Rows of a photograph repeat single bytes only. A search for longer matches takes three times as long for no gain.
STRATEGY = zlib.Z_RLE

Chunk = tuple[bytes, bytes]


def chunks(f: BinaryIO, names: Sequence[bytes]) -> Iterator[Chunk]:
    """Yield the chunks of a PNG file that have one of these names, as (name, content) [5.3].

    Raises
    ------
    ValueError
        If one of these chunks is cut short, or its checksum is wrong.
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
    """Return a PNG with more chunks after its header, a place that all chunks used here allow [5.6]."""
    at = len(_SIGNATURE) + 25
    return content[:at] + b"".join(map(_framed, more)) + content[at:]


def _framed(chunk: Chunk) -> bytes:
    name, content = chunk
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read_deep(f: BinaryIO, picture: Any, raw: str, key: Any) -> np.ndarray:
    """Return the samples of a 16-bit PNG. Pillow has decoded the high bytes, and decodes the low bytes here.

    Parameters
    ----------
    f : file
        The open file.
    picture : PIL.Image.Image
        The image of this file.
    raw : str
        Pillow's name for the byte order of the samples. Under the name of the other order, Pillow reads the low bytes.
    key : int, tuple of int or None
        The colour that the file names as transparent, which becomes an alpha of 0.

    Returns
    -------
    samples : (M, N, S) ndarray of uint16

    Raises
    ------
    ValueError
        If the PNG was cut short.
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
    elif raw == "LA;16B":  # two samples of two bytes each, read as four of one byte
        samples = decoded("RGBA").view(">u2").astype(np.uint16)
    else:
        samples = np.array(picture).astype(np.uint16) << 8 | decoded(raw.replace("16B", "16L"))
    if not picture.info.get("interlace"):  # Pillow fills missing rows without an error
        needed = len(samples) * (1 + samples[0].nbytes)
        data = b"".join(content for _, content in chunks(f, (b"IDAT",)))
        if len(zlib.decompressobj().decompress(data, needed)) < needed:
            raise ValueError("the PNG was cut short")
    if key is not None:
        opaque = np.where((samples == np.array(key)).all(axis=-1, keepdims=True), 0, 65535)
        samples = np.concatenate([samples, opaque.astype(np.uint16)], axis=-1)
    return samples


def write_deep(samples: np.ndarray) -> bytes:
    """Return the content of a PNG with 16 bits per sample.

    Parameters
    ----------
    samples : (M, N, S) ndarray of uint16
        S is 1 (grey), 2 (grey, alpha), 3 or 4 (red, green, blue, alpha).

    Returns
    -------
    content : bytes
        The file. Each row is coded as the difference from the row above (filter type 2) [9.2].
    """
    height, width, number = samples.shape
    rows = np.ascontiguousarray(samples, ">u2").view(np.uint8).reshape(height, -1)
    coded = np.pad(np.diff(rows, axis=0, prepend=np.uint8(0)), ((0, 0), (1, 0)), constant_values=2)
    head = struct.pack(">IIBBBBB", width, height, 16, (0, 4, 2, 6)[number - 1], 0, 0, 0)  # the colour type [11.2.1]
    coder = zlib.compressobj(strategy=STRATEGY)
    parts = [(b"IHDR", head), (b"IDAT", coder.compress(coded.tobytes()) + coder.flush()), (b"IEND", b"")]
    return _SIGNATURE + b"".join(map(_framed, parts))
