"""Picture files beyond the pixels: FITS, metadata, orientation, pipes, forged headers, and refusals."""

import bz2
import gzip
import io
import os
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms, ImageOps
from refusals import refused

from deblur import image, psf
from deblur.errors import InsufficientMemoryError

GREY = np.arange(20, dtype=np.uint8).reshape(4, 5) * 12
RGB = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=-1)


# -- FITS ------------------------------------------------------------------------------------


def fits_file(a, bitpix, **keys):
    """A FITS file written by hand, big-endian, first row first."""
    axes = {f"NAXIS{i + 1}": n for i, n in enumerate(reversed(a.shape))}
    cards = {"SIMPLE": "T", "BITPIX": bitpix, "NAXIS": a.ndim} | axes | keys
    head = b"".join(f"{k:<8}= {v:>20}".ljust(80).encode() for k, v in cards.items()) + b"END".ljust(80)
    body = a.tobytes()
    return head.ljust(-(-len(head) // 2880) * 2880) + body.ljust(-(-len(body) // 2880) * 2880, b"\0")


@pytest.mark.parametrize(
    ("stored", "bitpix", "keys", "expected"),
    [
        # Counts above 32767, as every camera writes them: signed, with an offset in the header.
        (np.array([[-31768, 682]], ">i2"), 16, {"BZERO": 32768}, np.array([[1000, 33450]], np.uint16)),
        (np.array([[1, 2], [3, 4]], ">i2"), 16, {"BZERO": 10, "BSCALE": 0.5}, [[10.5, 11], [11.5, 12]]),
        (np.array([[1 + 2**-40, -3.0]], ">f8"), -64, {}, np.array([[1 + 2**-40, -3.0]])),
        (np.arange(6, dtype=">f4").reshape(2, 3), -32, {}, np.arange(6, dtype=np.float32).reshape(2, 3)),
        (np.arange(8, dtype=">i4").reshape(1, 2, 2, 2), 32, {}, np.arange(8, dtype=np.int32).reshape(2, 2, 2)),
    ],
)  # fmt: skip
def test_fits_has_its_headers_scale_its_rows_and_its_precision(tmp_path, stored, bitpix, keys, expected):
    pytest.importorskip("astropy")
    path = tmp_path / "a.fits"
    path.write_bytes(fits_file(stored, bitpix, **keys))
    found = image.read(path, as_float=False)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.isnative
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype


def test_fits_in_an_extension_is_found_and_two_images_are_named(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    sci = fits.ImageHDU(GREY.astype(np.int16), name="SCI")
    fits.HDUList([fits.PrimaryHDU(), sci]).writeto(tmp_path / "one.fits")
    np.testing.assert_array_equal(image.read(tmp_path / "one.fits", as_float=False), GREY)
    more = [fits.ImageHDU(GREY.astype(np.int16) + 9, name="ERR")]
    more.append(fits.ImageHDU(-GREY.astype(float), name="SCI", ver=2))
    more.append(fits.CompImageHDU(np.full((40, 50), 7, np.int16), name="PACKED"))
    two = tmp_path / "two.fits"
    fits.HDUList([fits.PrimaryHDU(), sci.copy(), *more]).writeto(two)
    packed = {"gz": gzip.compress, "bz2": bz2.compress}
    for suffix, pack in packed.items():
        (tmp_path / f"two.fits.{suffix}").write_bytes(pack(two.read_bytes()))
    for path in (two, *(tmp_path / f"two.fits.{suffix}" for suffix in packed)):
        named = {"SCI": GREY, "sci,1": GREY, "2": GREY + 9.0, "SCI,2": -1.0 * GREY, "4": 7}
        for which, expected in named.items():
            found = image.read(f"{path}[{which}]", as_float=False)
            np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))
        refused(ValueError, r"two.fits.* 4 images: \[1\] SCI,1, .* as in two.fits.*\[1\]", image.read, path)
        for which in ("DQ", "0", "SCI,3", "9"):
            refused(ValueError, rf"holds no image '{which}': \[1\] SCI", image.read, f"{path}[{which}]")
    image.write(tmp_path / "a[1].png", GREY)  # a name, and no extension
    np.testing.assert_array_equal(image.read(tmp_path / "a[1].png", as_float=False), GREY)
    refused(ValueError, "not a FITS file, so it has no extension 'SCI'", image.read, f"{tmp_path}/a[1].png[SCI]")
    refused(ValueError, "inputs are never overwritten", image.check_writable, two, True, inputs=[f"{two}[SCI]"])


def test_fits_is_written_with_its_header_and_in_its_unit(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    counts = 300 * GREY.astype(np.uint16) + 30000  # above 32767: stored with BZERO, which floats do not need
    unit = fits.PrimaryHDU(counts)
    unit.header.update({"OBJECT": "M 31", "BUNIT": "adu", "CRPIX1": 3.5, "DATAMAX": 1.0})
    unit.header.add_history("flat field")
    unit.writeto(tmp_path / "a.fits", checksum=True)
    found, said = image.read_with_metadata(tmp_path / "a.fits")
    out = tmp_path / "b.fit"
    assert image.check_format(out, found) == 32
    assert image.writing.left_out(out, found, 32, said) == []
    assert image.writing.left_out(tmp_path / "b.tif", found, 16, said) == ["FITS header"]
    half, words = image.fit_to_levels(out, image.as_float(found) / 2, found, 32)
    assert words == "the numbers are in the unit of the uint16 input"
    image.write(out, half, metadata=said)
    with fits.open(out) as [written]:
        np.testing.assert_allclose(written.data, counts / 2, rtol=1e-6)
        header = written.header
    assert (header["OBJECT"], header["BUNIT"], header["CRPIX1"]) == ("M 31", "adu", 3.5)
    assert header["BITPIX"] == -32
    assert "flat field" in str(header["HISTORY"])
    assert not {"BZERO", "CHECKSUM", "DATASUM", "DATAMAX"} & set(header)


def test_fits_holds_stacks_and_no_colours(tmp_path, monkeypatch):
    pytest.importorskip("astropy")
    stack = np.linspace(-2.0, 2.0, 4 * 5 * 6).astype(np.float32).reshape(4, 5, 6)
    image.write(tmp_path / "a.fits", stack)
    np.testing.assert_array_equal(image.read(tmp_path / "a.fits"), stack)
    with pytest.raises(ValueError, match="a.fits: a FITS image has no colours; write a .tif"):
        image.check_format(tmp_path / "a.fits", np.zeros((4, 5, 3)))
    with pytest.raises(ValueError, match=r"holds 32 bits a sample, not 16; .png, .tif, .tiff hold 16"):
        image.check_format(tmp_path / "a.fits", stack, 16)
    monkeypatch.setattr("deblur.image.writing.find_spec", lambda name: None)
    refused(ValueError, "install astropy to write it", image.check_format, tmp_path / "a.fits", stack)


def test_fits_cut_short_is_damaged(tmp_path):
    pytest.importorskip("astropy")
    (tmp_path / "a.fits").write_bytes(fits_file(np.zeros((100, 100), ">i2"), 16)[:6000])
    refused(ValueError, r"cannot read .*a.fits .* damaged or was cut short", image.read, tmp_path / "a.fits")


def test_fits_without_astropy_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "astropy.io", None)
    (tmp_path / "a.fits").write_bytes(fits_file(GREY.astype(">i2"), 16))
    refused(ValueError, r"a.fits is a FITS file.*pip install astropy", image.read, tmp_path / "a.fits")


# -- metadata --------------------------------------------------------------------------------


def camera_exif(orientation=1):
    exif = Image.Exif()
    exif[271], exif[272], exif[306] = "Maker", "Model 5", "2024:05:06 07:08:09"
    exif[274] = orientation
    exif[0x8769] = {33434: 0.25, 37386: 50.0, 40962: 999, 40963: 888}
    exif[0x8825] = {1: "N", 2: (47.0, 22.0, 0.0)}
    return exif


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("source", ["a.jpg", "a.png", "a.tif"])
@pytest.mark.parametrize("target", ["b.jpg", "b.png", "b.tif"])
def test_exif_profile_and_resolution_go_from_file_to_file(tmp_path, source, target):
    picture = Image.fromarray(np.repeat(np.repeat(RGB, 4, 0), 4, 1))  # 20 wide, 16 high
    picture.save(tmp_path / source, exif=camera_exif(6).tobytes(), icc_profile=PROFILE, dpi=(300, 150))
    pixels, metadata = image.read_with_metadata(tmp_path / source)
    assert pixels.shape == (20, 16, 3)  # turned upright
    assert metadata.others == ()
    image.write(tmp_path / target, pixels, metadata=metadata)
    assert image.writing.left_out(tmp_path / target, pixels, 8, metadata) == []
    with Image.open(tmp_path / target) as written:
        exif = written.getexif()
        assert exif.get(274, 1) == 1  # the pixels stand upright already
        assert (exif[271], exif[272], exif[306]) == ("Maker", "Model 5", "2024:05:06 07:08:09")
        shot = exif.get_ifd(0x8769)
        assert (float(shot[33434]), float(shot[37386])) == (0.25, 50.0)
        assert (shot[40962], shot[40963]) == (16, 20)
        assert tuple(float(x) for x in exif.get_ifd(0x8825)[2]) == (47.0, 22.0, 0.0)
        assert written.info["icc_profile"] == PROFILE
        assert tuple(round(float(x)) for x in written.info["dpi"]) == (150, 300)  # turned with the pixels
        assert written.size == (16, 20)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_every_file_is_rotated_as_pillow_does(tmp_path, orientation, dtype):
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(GREY).save(tmp_path / "a.png", exif=exif)
    Image.fromarray(np.dstack([RGB, GREY])).save(tmp_path / "c.webp", exif=exif, lossless=True, exact=True)
    with Image.open(tmp_path / "a.png") as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture))
    tag = {"extratags": [(274, "H", 1, orientation, True)]}
    tifffile.imwrite(tmp_path / "a.tif", GREY.astype(dtype), **tag)
    tifffile.imwrite(tmp_path / "c.tif", RGB.astype(dtype), photometric="rgb", **tag)
    for name in ("a.png", "a.tif", "c.tif", "c.webp"):
        stands, metadata = image.read_with_metadata(tmp_path / name)
        np.testing.assert_array_equal(stands[..., 0] if stands.ndim == 3 else stands, expected)
        assert metadata.orientation == orientation
        if name != "c.webp":
            lies, again = image.reading.read_stored(tmp_path / name)
            np.testing.assert_array_equal(lies[..., 0] if lies.ndim == 3 else lies, GREY)
            assert again.orientation == orientation


def test_metadata_that_no_file_can_hold_are_named(tmp_path):
    picture = Image.fromarray(RGB)
    picture.save(tmp_path / "a.jpg", exif=camera_exif().tobytes(), comment=b"by hand", icc_profile=PROFILE)
    pixels, metadata = image.read_with_metadata(tmp_path / "a.jpg")
    assert metadata.others == ("comment",)
    assert image.writing.left_out("b.tif", pixels, 16, metadata) == ["comment"]
    picture.save(tmp_path / "fine.png", dpi=(99999, 99999))  # a microscope's, which no JPEG can say
    _, metadata = image.read_with_metadata(tmp_path / "fine.png")
    assert image.writing.left_out("b.jpg", pixels, 8, metadata) == ["resolution"]
    image.write(tmp_path / "fine.jpg", pixels, metadata=metadata)
    assert image.writing.left_out("b.tif", pixels, 8, metadata) == []
    Image.fromarray(GREY).save(tmp_path / "g.png", icc_profile=PROFILE)
    _, metadata = image.read_with_metadata(tmp_path / "g.png")
    assert metadata.icc == b""
    assert metadata.others == ("ICC profile (not for these colours)",)
    pages = [picture, picture.transpose(Image.Transpose.ROTATE_180)]
    pages[0].save(tmp_path / "m.mpo", save_all=True, append_images=pages[1:])
    assert "1 further pictures" in image.read_with_metadata(tmp_path / "m.mpo")[1].others


def test_a_file_without_metadata_has_none(tmp_path):
    for name in ("a.png", "a.jpg", "a.tif"):
        image.write(tmp_path / name, RGB)
        pixels, metadata = image.read_with_metadata(tmp_path / name)
        assert metadata == image.Metadata(), name
        assert image.writing.left_out("b.png", pixels, 8, metadata) == []


# -- pipes -----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg"])
def test_a_pipe_is_read_whole(tmp_path, suffix):
    image.write(tmp_path / f"a{suffix}", RGB)
    content = (tmp_path / f"a{suffix}").read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    np.testing.assert_array_equal(image.read(pipe), image.read(tmp_path / f"a{suffix}"))
    writer.join()
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",))
    writer.start()
    refused(ValueError, r"pipe is empty \(0 bytes\)", image.read, pipe)
    writer.join()


@pytest.mark.parametrize("call", [image.read, psf.load, psf.load_grid, lambda p: image.write(p, RGB), psf.save])
def test_names_of_no_file_are_refused_in_plain_words(call, tmp_path):
    h = [psf.box(3)] if call is psf.save else []
    for name, words in {
        "a\0b.npy": "holds the character NUL",
        f"{tmp_path}/{'x' * 300}.npy": "cannot be reached: File name too long; use another name",
        "  ": "is blank",
        None: "name of a file is text .*, not None",
    }.items():
        refused((OSError, ValueError, TypeError), words, call, name, *h)
    if call in (image.read, psf.load, psf.load_grid):
        refused(OSError, "/dev/zero is a terminal or another device", call, "/dev/zero")


# -- headers that promise much ---------------------------------------------------------------


def forged_png(width, height):
    buffer = io.BytesIO()
    Image.fromarray(GREY).save(buffer, "PNG")
    head = b"IHDR" + struct.pack(">II", width, height) + buffer.getvalue()[24:29]
    return buffer.getvalue()[:12] + head + struct.pack(">I", zlib.crc32(head)) + buffer.getvalue()[33:]


def test_a_forged_header_is_damaged_or_too_large(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(forged_png(15000, 14000))
    refused(ValueError, r"cannot read .*a.png.*damaged or was cut short", image.read, path)
    path.write_bytes(forged_png(2**31 - 1, 2**31 - 1))
    much = r"a.png: an image of 2147483647 x 2147.*free"
    with pytest.raises(InsufficientMemoryError, match=much) as caught:
        image.read(path)
    assert caught.value.needed > 2**61
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 5), np.uint16))
    content = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        for name in ("ImageWidth", "ImageLength"):
            at = tiff.pages[0].tags[name].valueoffset
            wide = tiff.pages[0].tags[name].dtype == 4
            content[at : at + 4] = struct.pack("<I", 2**31 - 1) if wide else b"\xff\xff"
        description = tiff.pages[0].tags["ImageDescription"]
        content[description.valueoffset] = ord(" ")  # the shape that tifffile notes there
    (tmp_path / "a.tif").write_bytes(content)
    refused((ValueError, MemoryError), "a.tif", image.read, tmp_path / "a.tif")


def test_pillows_limit_is_lifted_while_it_reads_and_one_of_the_program_is_kept(tmp_path, monkeypatch):
    limits = []
    check = Image._decompression_bomb_check

    def recorded(*args, **kwargs):
        limits.append(Image.MAX_IMAGE_PIXELS)
        return check(*args, **kwargs)

    monkeypatch.setattr(Image, "_decompression_bomb_check", recorded)
    before = Image.MAX_IMAGE_PIXELS
    frames = [Image.fromarray(RGB), Image.fromarray(RGB[::-1].copy())]
    for name in ("a.png", "a.tif", "a.gif", "a.webp", "a.bmp"):
        film = {"save_all": True, "append_images": frames[1:]} if name == "a.gif" else {}
        frames[0].save(tmp_path / name, **film)
        image.read(tmp_path / name)
    assert len(limits) >= 5
    assert set(limits) == {None}
    assert before == Image.MAX_IMAGE_PIXELS
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    for name in ("a.png", "a.tif", "a.gif"):
        refused(ValueError, rf"{name} has more than twice PIL.Image.MAX_IMAGE_PIXELS", image.read, tmp_path / name)


# -- refusals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100), r"HEIC .*; install pillow-heif .*\[heif\]"),
        (b"a shopping list\n\xc3\xa9", "it holds text"),
        (b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(200), "a MATLAB file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(200), "HDF5"),
        (b"\x93NUMPY\x01\0" + bytes(200), "NumPy array"),
        (b"PK\x03\x04" + bytes(100), "zip"),
        (b"\x1f\x8b\x08" + bytes(100), "gzip"),
        (b"%PDF-1.7\n\xff\xff", "PDF"),
        (b"\x00\x01\x02\x03" * 100, "of an unknown kind"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "damaged or was cut short"),
        (b"II*\0\xff\xff\xff\xff", "damaged or was cut short"),
    ],
)
def test_a_file_that_is_no_picture_is_named_in_plain_words(tmp_path, monkeypatch, content, words):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    path = tmp_path / "a.dat"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        image.read(path)
    said = str(caught.value)
    assert str(path) in said
    for leak in ("plugin", "BytesIO", "identify", "TiffFile", "imageio", "Backend", "initializ", "EOF"):
        assert leak not in said, said


def test_tifffiles_remarks_do_not_reach_stderr(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", GREY)
    (tmp_path / "a.tif").write_bytes((tmp_path / "a.tif").read_bytes().replace(b"[4, 5]", b"[4, 6]"))
    loud = "import tifffile, sys; tifffile.TiffFile(sys.argv[1]).series"
    ours = "import deblur, sys; deblur.image.read(sys.argv[1])"
    for code, silent in ((loud, False), (ours, True)):  # it does remark on something
        call = [sys.executable, "-c", code, str(tmp_path / "a.tif")]
        assert (subprocess.run(call, capture_output=True).stderr == b"") == silent


# -- what levels hold ------------------------------------------------------------------------


def test_a_picture_mostly_outside_black_and_white_is_refused_clipped_or_rescaled():
    source = np.full((10, 10), 0.5)
    restored = np.linspace(0, 1, 100).reshape(10, 10)
    restored.flat[:11] = 1.5  # and the next is 1/9
    with pytest.raises(ValueError, match=r"o.png: 11 % of the values.*0.1111 to 1.5;.*--rescale.*--clip"):
        image.fit_to_levels("o.png", restored, source, 8)
    np.testing.assert_array_equal(image.fit_to_levels("o.png", restored, source, 8, clip=True)[0], restored)
    scaled, words = image.fit_to_levels("o.png", restored - 1, source, 8, rescale=True)
    np.testing.assert_allclose(scaled, np.interp(restored, [1 / 9, 1.5], [0, 1]), atol=1e-14)
    assert words == "rescaled: -0.8889 to 0.5 became black to white"
    restored.flat[0] = 0.5  # a tenth is allowed
    assert image.fit_to_levels("o.png", restored, source, 8) == (pytest.approx(restored), "")
    assert image.fit_to_levels("o.tif", restored * 99, source, 32)[1] == ""


def test_pixels_that_the_input_clipped_already_do_not_count():
    source = np.full((10, 10, 3), 200, np.uint8)
    source[:5] = 255
    restored = np.where(source == 255, 1.4, 0.8)
    assert image.fit_to_levels("o.png", restored, source, 8)[1] == ""
    source[0] = 254
    restored = np.where(source == 254, 1.4, restored)
    assert image.fit_to_levels("o.png", restored, source, 8)[1] == ""  # a tenth
    source[1, 0, 0] = 254  # and one channel of one pixel
    refused(ValueError, r"10.3 % of the values", image.fit_to_levels, "o.png", restored, source, 8)


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int32])
def test_counts_keep_their_unit(dtype):
    counts = np.arange(100, dtype=dtype).reshape(10, 10)
    restored = image.as_float(counts)
    for bits, white in ((32, 1), (16, 65535), (8, 255)):
        kept, words = image.fit_to_levels("o.tif", restored, counts, bits)
        np.testing.assert_allclose(kept * white, counts, rtol=1e-12)
        assert np.dtype(dtype).name in words
    many = counts * 300  # more than 8 bits hold
    with pytest.raises(ValueError, match=r"o.png: 99 % .* lie outside 0 \(black\) to 255 .*0 to 2.97e\+04"):
        image.fit_to_levels("o.png", image.as_float(many), many, 8)
    scaled, words = image.fit_to_levels("o.png", image.as_float(many), many, 8, rescale=True)
    np.testing.assert_allclose(scaled, counts / 99, rtol=1e-12)
    assert words == "rescaled: 0 to 2.97e+04 became black to white"
    kept, _ = image.fit_to_levels("o.png", image.as_float(many), many, 16)
    np.testing.assert_allclose(kept * 65535, many, rtol=1e-12)


def test_floats_are_not_rounded_to_a_few_levels_unasked():
    faint = np.linspace(0, 0.02, 100, dtype=np.float32).reshape(10, 10)
    with pytest.raises(ValueError, match=r"o.png: the values, 0 to 0.02, .* fewer than 8 of 256.*--rescale"):
        image.fit_to_levels("o.png", faint, faint, 8)
    assert image.fit_to_levels("o.png", faint, faint, 16)[1] == ""
    levels = np.array([[7, 9]], np.uint8)  # a faint picture of levels is one all the same
    assert image.fit_to_levels("o.png", image.as_float(levels), levels, 8)[1] == ""
    flat = np.full((3, 3), 0.5)
    assert image.fit_to_levels("o.png", flat, flat, 8)[1] == ""
