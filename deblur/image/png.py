"""PNG where Pillow falls short: colours of 16 bits, which it cuts to 8, and chunks that it does not carry.

Written after the specification, https://www.w3.org/TR/png-3/, of which the numbers in brackets are the sections.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}  # a pixel, by colour type [11.2.1]
_COLOUR_TYPES = {samples: colour_type for colour_type, samples in _SAMPLES.items()}
#: First row and column, and the steps between rows and columns, of the seven passes of Adam7 [8.1].
_ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]

Chunk = tuple[bytes, bytes]


class Header(NamedTuple):
    """The chunk IHDR [11.2.1]."""

    width: int
    height: int
    depth: int
    colour_type: int
    compression: int
    filtering: int
    interlace: int


def header(f: BinaryIO) -> Header | None:
    """The header of a file, or None if it is no PNG."""
    f.seek(0)
    head = f.read(29)
    return (
        Header(*struct.unpack(">IIBBBBB", head[16:])) if head[:8] == SIGNATURE and len(head) == 29 else None
    )


def chunks(f: BinaryIO, names: Sequence[bytes]) -> Iterator[Chunk]:
    """Those chunks of a file that have one of these names, as (name, content) [5.3].

    Raises
    ------
    ValueError
        If one of them is cut short, or its checksum is wrong.
    """
    f.seek(len(SIGNATURE))
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
    """A PNG with these chunks behind its header, where all that are carried here may stand [5.6]."""
    at = len(SIGNATURE) + 25
    return content[:at] + b"".join(map(_framed, more)) + content[at:]


def _framed(chunk: Chunk) -> bytes:
    name, content = chunk
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read_deep(f: BinaryIO) -> np.ndarray:
    """The samples of a PNG of 16 bits.

    Returns
    -------
    samples : (M, N, S) ndarray of uint16
        S is 1 (grey), 2 (grey, alpha), 3 or 4 (red, green, blue, alpha). A colour that the file names as transparent
        [11.3.1] becomes an alpha of 0.

    Raises
    ------
    ValueError, zlib.error
        If the file is damaged.
    """
    head = header(f)
    if head is None or head.depth != 16:
        raise ValueError("no PNG of 16 bits")
    found = list(chunks(f, (b"IDAT", b"tRNS")))
    size = 2 * _SAMPLES[head.colour_type]
    image = np.empty((head.height, head.width, size), np.uint8)
    passes = [
        image[top::down, left::right]
        for top, left, down, right in (_ADAM7 if head.interlace else [(0, 0, 1, 1)])
    ]
    needed = [part.shape[0] * (1 + part.shape[1] * size) for part in passes if part.size]
    raw = zlib.decompressobj().decompress(
        b"".join(content for name, content in found if name == b"IDAT"), sum(needed)
    )
    if len(raw) != sum(needed):
        raise ValueError("the PNG was cut short")
    at = 0
    for part, length in zip((part for part in passes if part.size), needed, strict=True):
        lines = np.frombuffer(raw, np.uint8, length, at).reshape(part.shape[0], -1)
        part[:] = _unfiltered(lines[:, 1:].reshape(part.shape), lines[:, 0])
        at += length
    samples = image.view(">u2").astype(np.uint16)
    for name, content in found:
        if name == b"tRNS":
            key = np.frombuffer(content, ">u2", samples.shape[-1])
            opaque = np.where((samples == key).all(axis=-1, keepdims=True), 0, 65535)
            samples = np.concatenate([samples, opaque.astype(np.uint16)], axis=-1)
    return samples


def _unfiltered(lines: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The bytes of the lines, which hold what each differs by from a guess of the kind that the line names [9.2].

    The guess looks at the pixels to the left, above, and above to the left. So the pixels of an ascending diagonal do
    not depend on each other, and all of them are decoded at once.
    """
    if kinds.max() > 4:
        raise ValueError(f"the PNG names a filter {kinds.max()}, of which there are five")
    rows, columns, size = lines.shape
    padded = np.zeros((rows + 1, columns + 1, size), np.uint8)
    padded[1:, 1:] = lines
    flat = padded.reshape(-1, size)
    step = columns  # from one pixel of a diagonal to the next, which is a row down and a column to the left
    for k in range(rows + columns - 1):
        first, last = max(0, k - columns + 1), min(rows - 1, k)
        start = (first + 1) * (columns + 1) + k - first + 1
        end = start + (last - first) * step + 1
        left, up, corner = (
            flat[start - back : end - back : step].astype(np.int16) for back in (1, columns + 1, columns + 2)
        )
        guess = _guess(left, up, corner, kinds[first : last + 1, None])
        flat[start:end:step] += guess.astype(np.uint8)
    return padded[1:, 1:]


def _guess(left: np.ndarray, up: np.ndarray, corner: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    return np.choose(kinds, [np.zeros_like(left), left, up, (left + up) >> 1, _paeth(left, up, corner)])


def _paeth(left: np.ndarray, up: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Whichever of the three is nearest to left + up − corner [9.4]."""
    to_left, to_up = abs(up - corner), abs(left - corner)
    to_corner = abs(left + up - 2 * corner)
    return np.where(
        (to_left <= to_up) & (to_left <= to_corner), left, np.where(to_up <= to_corner, up, corner)
    )


def write_deep(samples: np.ndarray) -> bytes:
    """A PNG of 16 bits with these samples, (M, N, S) as `read_deep` gives them."""
    height, width, number = samples.shape
    lines = np.ascontiguousarray(samples.astype(">u2")).view(np.uint8).reshape(height, width, 2 * number)
    packer = zlib.compressobj(6)
    packed = []
    above = np.zeros((1, width + 1, 2 * number), np.int16)
    for top in range(0, height, 256):  # in parts, because the guesses take many times the memory of the image
        part = np.pad(lines[top : top + 256].astype(np.int16), ((0, 0), (1, 0), (0, 0)))
        padded = np.concatenate([above, part])
        guess = _paeth(padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1])
        coded = np.full((len(part), 1 + 2 * number * width), 4, np.uint8)  # filter 4 is Paeth's
        coded[:, 1:] = (padded[1:, 1:] - guess).astype(np.uint8).reshape(len(part), -1)
        packed.append(packer.compress(coded.data))
        above = part[-1:]
    packed.append(packer.flush())
    head = struct.pack(">IIBBBBB", width, height, 16, _COLOUR_TYPES[number], 0, 0, 0)
    return SIGNATURE + b"".join(map(_framed, [(b"IHDR", head), (b"IDAT", b"".join(packed)), (b"IEND", b"")]))
