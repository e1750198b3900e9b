"""Vectors, scaling against scikit-image, and image files of every kind that a user may bring."""

import os
import struct
import zlib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import skimage.util
import tifffile
from hypothesis import given
from hypothesis.extra import numpy as hnp
from PIL import Image
from refusals import refused

from deblur import image
from deblur.device import asnumpy

DATA = Path(__file__).parents[1] / "data"
INTEGERS = [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]

# -- vectors ---------------------------------------------------------------------------------


def test_im2vector_takes_the_pixels_row_by_row(xp):
    f = xp.asarray([[1, 2, 3], [4, 5, 6]])
    v = image.im2vector(f)
    assert type(v) is type(image.vector2im(v, (2, 3))) is xp.ndarray
    assert asnumpy(v).tolist() == [1, 2, 3, 4, 5, 6]
    assert asnumpy(image.im2vector(f.T)).tolist() == [1, 4, 2, 5, 3, 6]
    assert asnumpy(image.vector2im(v, (2, 3))).tolist() == [[1, 2, 3], [4, 5, 6]]


@given(f=hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_vector2im_undoes_im2vector(f):
    v = image.im2vector(f)
    np.testing.assert_array_equal(image.vector2im(v, f.shape), f)
    np.testing.assert_array_equal(image.vector2im(v[:, None], f.shape), f)
    assert image.vector2im(v, f.shape).dtype == f.dtype


def test_vectors_and_images_of_other_shapes_are_refused():
    for shape in [(3,), (2, 2, 3), (0, 3), ()]:
        refused(ValueError, "2-D", image.im2vector, np.ones(shape))
    for shape in [5, (2, 3), (1, 6), (6, 1, 1)]:
        refused(ValueError, "6 pixels", image.vector2im, np.ones(shape), (2, 3))
    for shape in [(6,), (2, 3, 1), (-2, -3), (1.5, 4), (0, 6)]:
        refused(ValueError, r"\(rows, columns\)", image.vector2im, np.ones(6), shape)


# -- scaling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*INTEGERS, np.bool_, np.float16, np.float32, np.float64])
def test_as_float_is_img_as_float(dtype, rng):
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        a = rng.integers(limits.min, limits.max, size=(13, 17), dtype=dtype, endpoint=True)
        a[0, :2] = limits.min, limits.max
    else:
        a = (rng.standard_normal((13, 17)) * 3).astype(dtype)
    ours, theirs = image.as_float(a), skimage.util.img_as_float(a)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_as_float_takes_every_8_bit_value_as_scikit_image_does(xp):
    a = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(asnumpy(image.as_float(xp.asarray(a))), skimage.util.img_as_float(a))


def test_as_float_leaves_floats_alone():
    a = np.array([[-3.0, 7.0]], np.float32)
    assert image.as_float(a) is a


@pytest.mark.parametrize("a", [np.ones((2, 2), complex), np.array([["a"]]), np.array([[None]])])
def test_as_float_wants_numbers(a):
    refused(TypeError, "real numbers", image.as_float, a)


# -- round trips -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        *(("a.png", dtype, shape) for dtype in (np.uint8, np.uint16) for shape in ((17, 19), (17, 19, 3))),
        ("a.PNG", np.uint8, (1, 1)),
        *(("a.webp", np.uint8, shape) for shape in ((17, 19), (17, 19, 3))),
        *(("a.tif", dtype, (17, 19)) for dtype in (np.uint8, np.uint16, np.float32)),
        *(("a.tiff", dtype, (17, 19, 3)) for dtype in (np.uint8, np.uint16, np.float32)),
        *(("a.tif", dtype, (5, 17, 19)) for dtype in (np.uint8, np.uint16, np.float32)),
        *(("a.tif", dtype, (n, 17, 19, 3)) for dtype in (np.uint16, np.float32) for n in (1, 4)),
        ("a.tif", np.float32, (1, 17, 19)),
        ("a.tif", np.uint8, (1, 1)),
    ],
)
def test_what_is_written_is_read_again(tmp_path, rng, name, dtype, shape):
    if dtype == np.float32:
        a = (rng.standard_normal(shape) * 5).astype(dtype)
    else:
        a = rng.integers(0, np.iinfo(dtype).max, size=shape, dtype=dtype, endpoint=True)
    assert image.write(tmp_path / name, a) == 0
    b = image.read(tmp_path / name, as_float=False)
    assert b.dtype == dtype
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(image.read(tmp_path / name), skimage.util.img_as_float(a))
    assert os.listdir(tmp_path) == [name]  # no temporary file is left


def test_jpeg_is_near_and_keeps_its_colours(tmp_path):
    y, x = np.mgrid[:32, :40] / 40
    a = np.stack([y, x, 0.5 * np.ones_like(x)], axis=-1)
    image.write(tmp_path / "a.jpg", a)
    b = image.read(tmp_path / "a.jpg")
    assert b.shape == a.shape
    assert np.abs(a - b).max() <= 0.03
    stripes = np.zeros((32, 40, 3))  # of red and blue, one pixel wide: halving the colours would mix them
    stripes[:, ::2, 0] = stripes[:, 1::2, 2] = 0.6
    image.write(tmp_path / "s.jpg", stripes)
    assert np.abs(image.read(tmp_path / "s.jpg") - stripes).max() <= 0.1
    image.write(tmp_path / "g.jpeg", y)
    assert np.abs(image.read(tmp_path / "g.jpeg") - y).max() <= 0.02


def test_default_depths():
    tiff = {"uint8": 8, "bool": 8, "uint16": 16, "int16": 32, "int32": 32, "float64": 32}
    depths = {"a.tif": tiff, "a.png": {"float32": 8, "uint16": 16, "int32": 8}, "a.jpg": {"uint16": 8}}
    for name, bits in depths.items():
        assert {dtype: image.check_format(name, np.zeros((4, 5), dtype)) for dtype in bits} == bits


def test_floats_are_rounded_to_the_nearest_level(tmp_path, rng):
    a = rng.random((17, 19))
    for i, (name, bits) in enumerate([("png", 8), ("png", 16), ("tif", 8), ("tif", 16)]):
        image.write(tmp_path / f"{i}.{name}", a, bits=bits)
        assert np.abs(image.read(tmp_path / f"{i}.{name}") - a).max() <= 0.5 / (2**bits - 1) + 1e-15


def test_clipped_values_are_counted_and_rounding_is_not(tmp_path):
    a = np.array([[-0.2, 0.0, 0.5, 1.0, 1.3, 1 + 1e-9, -1e-9]])
    assert image.write(tmp_path / "a.png", a) == 2
    assert image.read(tmp_path / "a.png", as_float=False).tolist() == [[0, 0, 128, 255, 255, 255, 0]]
    assert image.write(tmp_path / "a.tif", a) == 0
    np.testing.assert_array_equal(image.read(tmp_path / "a.tif"), a.astype(np.float32))


def test_write_takes_what_lives_on_a_gpu(tmp_path, xp):
    image.write(tmp_path / "a.png", xp.asarray([[0.0, 1.0]]))
    assert image.read(tmp_path / "a.png", as_float=False).tolist() == [[0, 255]]


# -- files made by others --------------------------------------------------------------------

GREY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=-1)


def pillow(path, mode_or_image, **options):
    picture = mode_or_image if isinstance(mode_or_image, Image.Image) else Image.fromarray(mode_or_image)
    picture.save(path, **options)
    return path


def test_palettes_become_their_colours(tmp_path):
    colour = Image.fromarray(RGB).quantize(256)
    expected = np.asarray(colour.convert("RGB"))
    for name in ("p.png", "p.gif", "p.tif"):
        np.testing.assert_array_equal(image.read(pillow(tmp_path / name, colour), as_float=False), expected)
    # A palette of greys is a grey image.
    for name in ("g.png", "g.gif", "g.tif"):
        grey = Image.fromarray(GREY).convert("P")
        np.testing.assert_array_equal(image.read(pillow(tmp_path / name, grey), as_float=False), GREY)


def test_one_bit_is_black_and_white(tmp_path):
    bits = GREY > 100
    packed = [("b.tif", {"compression": c}) for c in ("group4", "tiff_lzw", "packbits", "tiff_deflate")]
    for name, options in [("b.png", {}), ("b.gif", {}), ("b.tif", {}), *packed]:
        np.testing.assert_array_equal(image.read(pillow(tmp_path / name, bits, **options)), bits.astype(float))


@pytest.mark.parametrize("compression", ["tiff_lzw", "packbits", "tiff_deflate", "tiff_adobe_deflate"])
@pytest.mark.parametrize("a", [GREY, RGB, GREY.astype(np.uint16) * 200, GREY / np.float32(255)])
def test_compressed_tiff(tmp_path, a, compression):
    b = image.read(pillow(tmp_path / "a.tif", a, compression=compression), as_float=False)
    assert b.dtype == a.dtype
    np.testing.assert_array_equal(b, a)


def test_jpeg_inside_tiff(tmp_path):
    flat = np.full((16, 16, 3), (200, 90, 30), np.uint8)
    path = pillow(tmp_path / "a.tif", flat, compression="jpeg")
    assert np.abs(image.read(path, as_float=False).astype(int) - flat).max() <= 3


def test_compressed_integers_that_pillow_might_change_are_refused(tmp_path):
    path = pillow(tmp_path / "a.tif", GREY.astype(np.int32), compression="tiff_lzw")
    refused(ValueError, "LZW.*imagecodecs", image.read, path)


def test_compressions_that_neither_reader_knows_are_named(tmp_path):
    # 16-bit colour in LZW: Pillow would cut it to 8 bits. Written by hand, for want of an encoder.
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RGB.astype(np.uint16), photometric="rgb")
    with tifffile.TiffFile(path) as tiff:
        where = tiff.pages[0].tags["Compression"].valueoffset
    content = bytearray(path.read_bytes())
    content[where : where + 2] = struct.pack("<H", 5)
    path.write_bytes(content)
    refused(ValueError, r"LZW.*imagecodecs", image.read, path)


def test_opaque_alpha_is_dropped_and_transparency_refused(tmp_path):
    alpha = np.full_like(GREY, 255)
    for name in ("a.png", "a.tif"):
        path = pillow(tmp_path / name, np.dstack([RGB, alpha]))
        np.testing.assert_array_equal(image.read(path, as_float=False), RGB)
        path = pillow(tmp_path / f"grey_{name}", Image.fromarray(np.dstack([GREY, alpha]), "LA"))
        np.testing.assert_array_equal(image.read(path, as_float=False), GREY)
        alpha2 = alpha.copy()
        alpha2[1, 1] = 254
        refused(ValueError, "transparent.*flatten", image.read, pillow(tmp_path / f"t{name}", np.dstack([RGB, alpha2])))
    deep = np.dstack([RGB, alpha]).astype(np.uint16) * 257
    tifffile.imwrite(tmp_path / "deep.tif", deep, photometric="rgb", extrasamples=["unassalpha"])
    np.testing.assert_array_equal(image.read(tmp_path / "deep.tif", as_float=False), deep[..., :3])


def test_transparent_palette_entries_count_as_transparency(tmp_path):
    colour, full = (Image.fromarray(RGB).quantize(8) for _ in range(2))
    full.putpalette(full.getpalette()[:24] + [0] * (768 - 24))
    deep = GREY.astype(np.uint16) * 9
    # No pixel has these values.
    for picture, unused, expected in ((full, 255, full.convert("RGB")), (GREY, 13, GREY), (deep, 13, deep)):
        path = pillow(tmp_path / "a.png", picture, transparency=unused)
        np.testing.assert_array_equal(image.read(path, as_float=False), np.asarray(expected))
    for picture, used in ((colour, int(np.asarray(colour)[0, 0])), (GREY, 12), (deep, 108)):
        path = pillow(tmp_path / "a.png", picture, transparency=used)
        refused(ValueError, "transparent", image.read, path)
    pixels, found = image.read_with_metadata(path)
    np.testing.assert_array_equal(pixels, deep)
    np.testing.assert_array_equal(found.alpha, np.where(deep == 108, 0, 65535))


def test_cmyk_and_lab_are_refused_in_words(tmp_path):
    for name in ("c.jpg", "c.tif"):
        pillow(tmp_path / name, Image.new("CMYK", (5, 4), (1, 2, 3, 4)))
    pillow(tmp_path / "l.tif", Image.new("LAB", (5, 4), (1, 2, 3)))
    tifffile.imwrite(tmp_path / "deep.tif", np.zeros((4, 5, 4), np.uint16), photometric="separated")
    for name, colours in {"c.jpg": "CMYK", "c.tif": "CMYK", "deep.tif": "CMYK", "l.tif": "LAB"}.items():
        refused(ValueError, rf"{colours}.*convert it to RGB", image.read, tmp_path / name)


def png(rows, width, depth, colour_type, *, height=None, interlace=0, filtered=False):
    """A PNG written by hand: `rows` are the packed bytes of each line, if `filtered` after the filter's number."""

    def chunk(name, content):
        size, checksum = (struct.pack(">I", n) for n in (len(content), zlib.crc32(name + content)))
        return size + name + content + checksum

    size = (width, len(rows) if height is None else height)
    head = struct.pack(">IIBBBBB", *size, depth, colour_type, 0, 0, interlace)
    body = zlib.compress(b"".join(row if filtered else b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_deep_colour_png_keeps_every_bit():
    # What tests/data/rgb16.png (without the last) and rgba16.png hold; libpng wrote them.
    y, x = np.mgrid[:12, :10].astype(np.int64)
    samples = [y * 5000 + x * 37, x * 6000 + y, (x * y * 599 + y**3 * 77) % 65536, 40000 + x * y * 100]
    expected = np.stack(samples, axis=-1).astype(np.uint16)
    np.testing.assert_array_equal(image.read(DATA / "rgb16.png", as_float=False), expected[..., :3])
    pixels, found = image.read_with_metadata(DATA / "rgba16.png")
    np.testing.assert_array_equal(pixels, expected[..., :3])
    np.testing.assert_array_equal(found.alpha, expected[..., 3])


def samples_of(path, content):
    """(M, N, S): what `read_with_metadata` makes of a PNG with this content, opacity included."""
    path.write_bytes(content)
    pixels, found = image.read_with_metadata(path)
    return pixels if found.alpha is None else np.dstack([pixels, found.alpha])


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("colour_type", "samples"), [(0, 1), (4, 2), (2, 3), (6, 4)])
@pytest.mark.parametrize("shape", [(13, 11), (1, 1), (3, 9)])
def test_deep_png_of_every_kind_keeps_every_bit(tmp_path, rng, shape, colour_type, samples, interlace):
    a = rng.integers(65536, size=(*shape, samples)).astype(">u2")
    parts = [a[top::down, left::right] for top, left, down, right in ADAM7] if interlace else [a]
    lines = [row.tobytes() for part in parts for row in part if part.size]
    content = png(lines, shape[1], 16, colour_type, height=shape[0], interlace=interlace)
    np.testing.assert_array_equal(samples_of(tmp_path / "a.png", content).reshape(a.shape), a)


@pytest.mark.parametrize("samples", [1, 2, 3, 4])
def test_deep_png_is_written_as_pillow_and_we_read_it(tmp_path, rng, samples):
    a = np.cumsum(rng.integers(-200, 200, (300, 8, samples)), axis=1).astype(np.uint16)
    alpha = a[..., -1] if samples in (2, 4) else None
    colours = a if alpha is None else a[..., :-1]
    colours = colours if samples > 2 else colours[..., 0]
    image.write(tmp_path / "a.png", colours, metadata=image.Metadata(alpha=alpha))
    found = samples_of(tmp_path / "b.png", (tmp_path / "a.png").read_bytes())
    np.testing.assert_array_equal(found.reshape(a.shape), a)
    theirs = np.asarray(Image.open(tmp_path / "a.png"))
    if samples == 1:
        np.testing.assert_array_equal(theirs, a[..., 0])
    elif samples != 2:  # of which Pillow makes RGBA
        np.testing.assert_array_equal(theirs, a >> 8)


DEEP = (DATA / "rgb16.png").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        DEEP[:-30],
        DEEP[:200] + b"x" + DEEP[201:],
        png([bytes(60)] * 3, 10, 16, 2, height=4),
        png([bytes([9]) + bytes(60)], 10, 16, 2, filtered=True),
    ],
    ids=["cut short", "damaged", "a row too few", "an unknown filter"],
)
def test_a_damaged_deep_png_is_said_to_be_damaged(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    refused(ValueError, "damaged or was cut short", image.read, tmp_path / "a.png")


def test_two_bit_greys_and_a_pgm_of_16_bits(tmp_path):
    (tmp_path / "a.png").write_bytes(png([bytes([0b00011011])], 4, 2, 0))
    np.testing.assert_allclose(image.read(tmp_path / "a.png"), [[0, 1 / 3, 2 / 3, 1]], atol=1e-15)
    a = np.array([[0, 1, 257], [32768, 65534, 65535]])
    (tmp_path / "a.pgm").write_bytes(b"P5 3 2 65535\n" + a.astype(">u2").tobytes())
    expected = skimage.util.img_as_float(a.astype(np.uint16))
    np.testing.assert_array_equal(image.read(tmp_path / "a.pgm"), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_tiff_with_zero_as_white(tmp_path, dtype):
    stored = (np.iinfo(dtype).max - GREY.astype(np.int64)).astype(dtype)
    tifffile.imwrite(tmp_path / "w.tif", stored, photometric="miniswhite")
    np.testing.assert_array_equal(image.read(tmp_path / "w.tif", as_float=False), GREY.astype(dtype))
    tifffile.imwrite(tmp_path / "f.tif", GREY.astype(np.float32), photometric="miniswhite")
    refused(ValueError, "zero is white", image.read, tmp_path / "f.tif")


@pytest.mark.parametrize("dtype", [*INTEGERS[:3], *INTEGERS[4:7], np.float16, np.float32, np.float64])
def test_tiff_of_all_numbers_together_and_colour_by_colour(tmp_path, dtype):
    a, colours = GREY.astype(dtype), RGB.astype(dtype)
    said = {"photometric": "rgb", "planarconfig": "separate"}
    tifffile.imwrite(tmp_path / "p.tif", colours.transpose(2, 0, 1), **said)
    np.testing.assert_array_equal(image.read(tmp_path / "p.tif", as_float=False), colours)
    for stored in (a, a[0], a[0, :1]):  # also lines, whose rows tifffile drops
        tifffile.imwrite(tmp_path / "a.tif", stored)
        assert image.read(tmp_path / "a.tif", as_float=False).dtype == dtype
        np.testing.assert_array_equal(image.read(tmp_path / "a.tif"), skimage.util.img_as_float(np.atleast_2d(stored)))


def test_pages_and_frames_however_they_were_written(tmp_path):
    pages = np.stack([GREY, GREY + 1, GREY + 2])
    with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
        for page in pages:
            tiff.write(page)
    pictures = [Image.fromarray(page) for page in pages]
    pictures[0].save(tmp_path / "b.tif", save_all=True, append_images=pictures[1:])
    tifffile.imwrite(tmp_path / "c.tif", pages, imagej=True)
    tifffile.imwrite(tmp_path / "d.tif", pages, bigtiff=True, byteorder=">", photometric="minisblack")
    for name in "abcd":
        np.testing.assert_array_equal(image.read(tmp_path / f"{name}.tif", as_float=False), pages)
    frames = [Image.fromarray(RGB), Image.fromarray(RGB[::-1].copy())]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert image.read(tmp_path / "a.gif").shape == (2, 4, 5, 3)


def test_tiff_that_is_no_plain_stack(tmp_path):
    with tifffile.TiffWriter(tmp_path / "sizes.tif") as tiff:
        tiff.write(GREY)
        tiff.write(GREY[:2])
    refused(ValueError, "different sizes", image.read, tmp_path / "sizes.tif")
    tifffile.imwrite(tmp_path / "hyper.tif", np.zeros((2, 3, 4, 5), np.uint8), imagej=True)
    assert image.read(tmp_path / "hyper.tif").shape == (6, 4, 5)
    tifffile.imwrite(tmp_path / "bands.tif", np.zeros((4, 5, 4), np.uint8), photometric="rgb", extrasamples=[0])
    refused(ValueError, r"^[^:]*bands.tif has 4 samples a pixel, some of unknown", image.read, tmp_path / "bands.tif")
    tifffile.imwrite(tmp_path / "complex.tif", np.zeros((4, 5), np.complex64))
    refused(ValueError, "not real numbers", image.read, tmp_path / "complex.tif")


def test_the_content_decides_the_format_and_not_the_name(tmp_path):
    pillow(tmp_path / "really_tiff.png", GREY, format="TIFF")
    pillow(tmp_path / "really_png.tif", GREY, format="PNG")
    pillow(tmp_path / "no_suffix", GREY, format="PNG")
    for name in ("really_tiff.png", "really_png.tif", "no_suffix"):
        np.testing.assert_array_equal(image.read(tmp_path / name, as_float=False), GREY)


# -- files that cannot be read ---------------------------------------------------------------


def test_missing_folder_and_empty(tmp_path):
    refused(FileNotFoundError, "no such file", image.read, tmp_path / "a.png")
    refused(FileNotFoundError, "no such file", image.read, "https://example.org/a.png")
    refused(IsADirectoryError, "is a folder; name", image.read, tmp_path)
    (tmp_path / "e.png").touch()
    refused(ValueError, "0 bytes", image.read, tmp_path / "e.png")


def test_unreadable(tmp_path, monkeypatch):
    path = pillow(tmp_path / "a.png", GREY)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)  # root may read everything, so chmod would not do
    refused(PermissionError, "a.png cannot be read: Permission denied", image.read, path)


@pytest.mark.filterwarnings("ignore:Truncated File Read:UserWarning")
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.gif", "a.tif", "deep.tif", "a.bmp"])
def test_a_file_cut_short_is_an_error_at_every_length(tmp_path, rng, name):
    pixels = rng.integers(0, 255, (24, 24), np.uint8)
    whole = pillow(tmp_path / name, pixels.astype(np.uint16) if name == "deep.tif" else pixels).read_bytes()
    for length in range(1, int(0.9 * len(whole)), 29):
        (tmp_path / name).write_bytes(whole[:length])
        refused(ValueError, "cannot read", image.read, tmp_path / name)


def test_nan_in_a_tiff(tmp_path):
    a = np.ones((4, 5), np.float32)
    a[1, 2], a[3, 3] = np.nan, np.inf
    tifffile.imwrite(tmp_path / "n.tif", a)
    refused(ValueError, r"n.tif holds 2 value\(s\) that are NaN or infinite.*\(1, 2\)", image.read, tmp_path / "n.tif")


# -- writing ---------------------------------------------------------------------------------


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    encode = image.writing._encode

    def slow(*args):
        path.write_bytes(b"mine")
        return encode(*args)

    monkeypatch.setattr(image.writing, "_encode", slow)
    refused(FileExistsError, "is there already", image.write, path, GREY)
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    for error, words in (((28, "Full"), "No space left on device"), (("9 requested and 5 written",), "9 requested")):
        monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(*error)))  # of the system, and of NumPy
        refused(OSError, f"a.png could not be written: {words}", image.write, path, GREY, overwrite=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_nothing_is_overwritten_unasked_and_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target.png", tmp_path / "link.png"
    image.write(target, GREY)
    link.symlink_to(target)
    for path in (target, link):
        refused(FileExistsError, "overwrite=True", image.write, path, RGB)
        np.testing.assert_array_equal(image.read(path, as_float=False), GREY)
    image.write(link, RGB, overwrite=True)
    assert link.is_symlink()
    np.testing.assert_array_equal(image.read(target, as_float=False), RGB)


def test_new_files_have_the_usual_permissions(tmp_path):
    image.write(tmp_path / "a.png", GREY)
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.png").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_check_writable(tmp_path, monkeypatch):
    assert image.check_writable(tmp_path / "new.json") == tmp_path / "new.json"
    refused(IsADirectoryError, "add a file name", image.check_writable, tmp_path)
    refused(FileNotFoundError, "make it first", image.check_writable, tmp_path / "none" / "a.png")
    refused(OSError, "not a regular file", image.check_writable, "/dev/null", overwrite=True)
    (tmp_path / "file").touch()
    refused(OSError, "folder", image.check_writable, tmp_path / "file" / "a.png")
    monkeypatch.setattr(os, "access", lambda *a: False)
    refused(PermissionError, "not writable", image.check_writable, tmp_path / "new.png")


@pytest.mark.parametrize(
    ("name", "shape", "bits", "words"),
    [
        ("a.bmp", (4, 5), None, "use one of .png"),
        ("a", (4, 5), None, "without a suffix"),
        ("a.png", (5,), None, "not shape"),
        ("a.png", (0, 5), None, "not shape"),
        ("a.tif", (2, 2, 4, 5), None, "not shape"),
        ("a.tif", (2, 2, 4, 5, 3), None, "not shape"),
        ("a.png", (2, 4, 5), None, "not a stack"),
        ("a.jpg", (2, 4, 5, 3), None, "not a stack"),
        ("a.jpg", (1, 65536), None, "at most 65535 pixels"),
        ("a.webp", (16384, 1, 3), None, "at most 16383 pixels"),
        ("a.png", (4, 5), 32, "8 or 16 bits a sample, not 32; .tif, .tiff, .fits, .fit, .fts hold 32"),
        ("a.jpg", (4, 5), 16, "8 bits a sample, not 16; .png"),
        ("a.tif", (4, 5), 12, "8 or 16 or 32 bits a sample, not 12$"),
    ],
)
def test_write_refuses_before_it_touches_the_disk(tmp_path, name, shape, bits, words):
    refused(ValueError, words, image.write, tmp_path / name, np.zeros(shape), bits=bits)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_write_refuses_what_is_not_finite(tmp_path, name, value):
    refused(ValueError, "NaN or infinite", image.write, tmp_path / name, np.array([[0.0, value]]))
    refused(ValueError, "reaches 1e.300, and 32-bit", image.write, tmp_path / "a.tif", np.array([[1e300]]))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (2, 4, 5), (2, 4, 5, 3), (4, 3)])
def test_is_colour_goes_by_the_last_of_three_axes(shape):
    assert image.is_colour(np.zeros(shape)) == (shape in [(4, 5, 3), (2, 4, 5, 3)])
