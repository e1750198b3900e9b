"""What a file says beside its pixels travels: files by Pillow, tifffile and imageio, read, written and read again."""

import struct

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms, PngImagePlugin
from PIL.TiffImagePlugin import IFDRational
from refusals import refused

import deblur
from deblur import image
from deblur.cli import main
from deblur.image import reading

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GREY_PROFILE = PROFILE[:16] + b"GRAY" + PROFILE[20:]


def samples(rng, shape, dtype=np.uint8):
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def travelled(source, target, dtype=None):
    """(pixels, what was left out) of a file that was read and written again, in another dtype if asked."""
    pixels, metadata = image.read_with_metadata(source)
    pixels = pixels if dtype is None else image.as_float(pixels).astype(dtype)
    bits = image.check_format(target, pixels)
    assert image.write(target, pixels, metadata=metadata) == 0
    return pixels, image.writing.left_out(target, pixels, bits, metadata)


# -- EXIF in every TIFF --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3), (4, 9, 7), (2, 9, 7, 3), (1, 9, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_exif_goes_into_every_tiff(tmp_path, rng, shape, dtype):
    exif = Image.Exif()
    exif.update({271: "Maker", 272: "Maker Five", 305: "Camera 1.2"})
    exif.update({270: "the sea", 306: "2024:05:06 07:08:09"})
    exif[0x8769] = {33434: IFDRational(1, 4), 37386: IFDRational(50), 37500: b"secret\0bytes", 40962: 7}
    exif[0x8825] = {1: "N", 2: tuple(map(IFDRational, (47, 22, 25), (1, 1, 2)))}
    metadata = image.Metadata(exif=exif.tobytes(), dpi=(300, 150))
    path, a = tmp_path / "a.tif", samples(rng, shape, dtype)
    image.write(path, a, metadata=metadata)
    assert image.writing.left_out(path, a, 8 * a.itemsize, metadata) == []
    np.testing.assert_array_equal(tifffile.imread(path), a)
    with tifffile.TiffFile(path) as tiff:
        tags = tiff.pages[0].tags
        assert list(tags.keys()) == sorted(tags.keys())
        written = [tags[name].value for name in (271, 272, 305, 306)]
        assert written == ["Maker", "Maker Five", "Camera 1.2", "2024:05:06 07:08:09"]
        shot = tags[0x8769].value
        assert (shot["ExposureTime"], shot["FocalLength"]) == ((1, 4), (50, 1))
        assert shot["MakerNote"] == b"secret\0bytes"
        assert tags[0x8825].value["GPSLatitude"] == (47, 1, 22, 1, 25, 2)
        assert len(tiff.pages) == (shape[0] if len(shape) - (shape[-1] == 3) == 3 else 1)
    pixels, found = image.read_with_metadata(path)
    np.testing.assert_array_equal(pixels.reshape(a.shape), a)
    assert (found.camera, found.dpi) == ("Maker Five", (300, 150))
    if a.dtype == np.uint8:
        with Image.open(path) as picture:
            again = picture.getexif()
            assert again[270] == "the sea"
            assert dict(again.get_ifd(0x8825)) == {1: "N", 2: (47.0, 22.0, 12.5)}


@pytest.mark.parametrize(
    ("make", "model", "named"),
    [
        ("NIKON CORPORATION", "NIKON D850", "NIKON D850"),
        ("Apple", "iPhone 15", "Apple iPhone 15"),
        ("", "X100", "X100"),
        ("Canon\0", "", "Canon"),
    ],
)
def test_the_camera_is_named_once(make, model, named):
    exif = Image.Exif()
    exif.update({271: make, 272: model})
    assert image.Metadata(exif=exif.tobytes()).camera == named


# -- microscopes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), [("b.ome.tif", np.uint16), ("b.tif", np.float32), ("b.tif", np.uint8)])
@pytest.mark.parametrize(
    ("axes", "shape"), [("CYX", (3, 8, 9)), ("TZCYX", (2, 3, 2, 8, 9)), ("YX", (8, 9)), ("ZYXS", (2, 8, 9, 3))]
)
def test_ome_keeps_scale_axes_and_names(tmp_path, rng, name, dtype, axes, shape):
    a = samples(rng, shape, np.uint16)
    names = ["DAPI", "GFP é", "RFP"][: shape[axes.index("C")]] if "C" in axes else []
    scale = {"PhysicalSizeX": 0.1, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.2, "PhysicalSizeZ": 0.5}
    said = {"axes": axes, **scale, "Description": "a <cell>", **({"Channel": {"Name": names}} if names else {})}
    colours = "rgb" if "S" in axes else "minisblack"
    tifffile.imwrite(tmp_path / "a.ome.tif", a, photometric=colours, metadata=said)
    pixels, left = travelled(tmp_path / "a.ome.tif", tmp_path / name, dtype if dtype != np.uint16 else None)
    assert left == []
    with tifffile.TiffFile(tmp_path / name) as tiff:
        assert tiff.is_ome
        series = tiff.series[0]
        assert (series.axes, series.shape) == (axes, shape)
        if series.dtype.kind == "u" and pixels.dtype.kind == "f":  # as `image.write` rounds them
            pixels = np.rint(pixels * np.iinfo(series.dtype).max)
        np.testing.assert_array_equal(series.asarray().reshape(pixels.shape), pixels)
        described = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]
        assert described["Description"] == "a <cell>"
        for key, value in scale.items():
            assert described["Pixels"][key] == value
        if names:
            assert [c["Name"] for c in described["Pixels"]["Channel"]] == names
    again, metadata = image.read_with_metadata(tmp_path / name)
    assert again.shape == pixels.shape
    assert metadata.axes == axes[: axes.index("Y")]


def ome_set(folder, planes, axis, uuid=True):
    """An OME-TIFF in as many files as there are planes, each of which describes all, as Micro-Manager writes it."""
    sizes = {f"Size{a}": len(planes) if a == axis else 1 for a in "ZCT"} | {"SizeY": 8, "SizeX": 9}
    planes_of = "".join(
        f'<TiffData First{axis}="{i}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{i}.ome.tif">urn:uuid:{i}</UUID></TiffData>'
        for i in range(len(planes))
    )
    pixels = " ".join(f'{name}="{n}"' for name, n in sizes.items())
    for i, plane in enumerate(planes):
        own = f' UUID="urn:uuid:{i}"'
        text = (
            f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"{own if uuid else ""}>'
            f'<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" {pixels}>'
            f'<Channel ID="Channel:0" SamplesPerPixel="1"/>{planes_of}</Pixels></Image></OME>'
        )
        tifffile.imwrite(folder / f"{i}.ome.tif", plane, description=text, metadata=None)


@pytest.mark.parametrize("uuid", [True, False])
@pytest.mark.parametrize("axis", ["Z", "T", "C"])
def test_all_files_of_an_ome_set_are_read_or_the_missing_ones_are_named(tmp_path, rng, axis, uuid):
    planes = samples(rng, (3, 8, 9), np.uint16)
    ome_set(tmp_path, planes, axis, uuid)
    for name in ("0.ome.tif", "2.ome.tif"):
        pixels, left = travelled(tmp_path / name, tmp_path / f"of_{name}")
        np.testing.assert_array_equal(pixels, planes)
        assert left == []
        with tifffile.TiffFile(tmp_path / f"of_{name}") as tiff:
            assert (tiff.series[0].axes, tiff.series[0].shape) == (f"{axis}YX", planes.shape)
            np.testing.assert_array_equal(tiff.series[0].asarray(), planes)
    (tmp_path / "1.ome.tif").unlink()
    for name in ("0.ome.tif", "2.ome.tif"):
        refused(ValueError, rf"{name} holds 2 of the 3 planes .*; put 1.ome.tif beside it", image.read, tmp_path / name)
    only = '<OME><BinaryOnly MetadataFile="a.companion.ome" UUID="urn:uuid:9"/></OME>'
    tifffile.imwrite(tmp_path / "part.ome.tif", planes[0], description=only, metadata=None)
    with pytest.raises(ValueError, match=r"one file of an OME-TIFF that a.companion.ome describes"):
        image.read(tmp_path / "part.ome.tif")
    _, metadata = image.read_with_metadata(tmp_path / "of_0.ome.tif")
    assert image.writing.left_out("a.ome.tif", planes[0], 16, metadata) == ["OME's pixel size and channel names"]


@pytest.mark.parametrize(
    ("axes", "shape", "dtype"),
    [
        ("ZYX", (3, 8, 9), np.uint16),
        ("TZCYX", (2, 3, 2, 8, 9), np.uint8),
        ("TCYX", (2, 2, 8, 9), np.float32),
        ("YX", (8, 9), np.uint16),
        ("ZYXS", (3, 8, 9, 3), np.uint8),
    ],
)
def test_imagej_keeps_scale_axes_and_labels(tmp_path, rng, axes, shape, dtype):
    a = samples(rng, shape, dtype)
    pages = int(np.prod(shape[: axes.index("Y")]))
    labels = [f"page {i} é" for i in range(pages)] if pages > 1 else ["only"]
    settings = {"unit": "um", "spacing": 0.5, "finterval": 2.5, "Info": "taken by hand"}
    settings |= {"min": 10.0, "max": 200.0}
    said = {**settings, "axes": axes, "Labels": labels}
    tifffile.imwrite(tmp_path / "a.tif", a, imagej=True, resolution=(9.5, 8.25), metadata=said)
    pixels, left = travelled(tmp_path / "a.tif", tmp_path / "b.tif")
    assert left == []
    assert pixels.shape == (*((pages,) if pages > 1 else ()), *shape[axes.index("Y") :])
    for name in ("a", "b"):
        with tifffile.TiffFile(tmp_path / f"{name}.tif") as tiff:
            assert tiff.is_imagej
            assert (tiff.series[0].axes, tiff.series[0].shape) == (axes, shape)
            np.testing.assert_array_equal(tiff.series[0].asarray(), a)
            found = tiff.imagej_metadata
            assert {key: found[key] for key in settings} == settings
            assert found["Labels"] == (labels if pages > 1 else "only")
            assert tiff.pages[0].resolution == (9.5, 8.25)


def test_imagejs_display_range_is_dropped_where_the_numbers_are_others(tmp_path, rng):
    settings = {"axes": "ZYX", "unit": "\\u00B5m", "spacing": 0.5, "min": 10.0, "max": 200.0}
    tifffile.imwrite(tmp_path / "a.tif", samples(rng, (3, 8, 9)), imagej=True, metadata=settings)
    assert travelled(tmp_path / "a.tif", tmp_path / "b.tif", np.float32)[1] == []
    with tifffile.TiffFile(tmp_path / "b.tif") as tiff:
        assert tiff.imagej_metadata["unit"] == "\\u00B5m"
        assert "min" not in tiff.imagej_metadata


def test_lost_imagej_and_ome_metadata_are_reported(tmp_path, rng):
    tifffile.imwrite(tmp_path / "j.tif", samples(rng, (8, 9, 3)), imagej=True, resolution=(9, 9))
    ome = {"axes": "YX", "PhysicalSizeX": 0.1}
    tifffile.imwrite(tmp_path / "o.ome.tif", samples(rng, (8, 9)), metadata=ome)
    assert travelled(tmp_path / "j.tif", tmp_path / "j.png")[1] == ["ImageJ's scale and settings"]
    assert travelled(tmp_path / "j.tif", tmp_path / "f.tif", np.float32)[1] == ["ImageJ's scale and settings"]
    assert travelled(tmp_path / "o.ome.tif", tmp_path / "o.jpg")[1] == ["OME's pixel size and channel names"]
    with tifffile.TiffFile(tmp_path / "f.tif") as tiff:
        assert not tiff.is_imagej


def test_a_stack_keeps_profile_resolution_and_the_letters_of_its_axes(tmp_path, rng):
    a = samples(rng, (2, 3, 8, 9), np.uint16)
    said = {"iccprofile": GREY_PROFILE, "resolution": (300, 150), "resolutionunit": "INCH"}
    tifffile.imwrite(tmp_path / "a.tif", a, photometric="minisblack", metadata={"axes": "TZYX"}, **said)
    assert travelled(tmp_path / "a.tif", tmp_path / "b.tif")[1] == []
    with tifffile.TiffFile(tmp_path / "b.tif") as tiff:
        assert (tiff.series[0].axes, tiff.series[0].shape) == ("TZYX", a.shape)
        np.testing.assert_array_equal(tiff.series[0].asarray(), a)
        assert (tiff.pages[0].tags["ResolutionUnit"].value, tiff.pages[0].resolution) == (2, (300, 150))
        assert tiff.pages[0].iccprofile == GREY_PROFILE


# -- transparency --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("target", ["b.png", "b.tif"])
def test_transparency_goes_along_bit_for_bit(tmp_path, rng, dtype, colour, target):
    a, alpha = samples(rng, (8, 9, 3) if colour else (8, 9), dtype), samples(rng, (8, 9), dtype)
    image.write(tmp_path / "a.png", a, metadata=image.Metadata(alpha=alpha))
    pixels, left = travelled(tmp_path / "a.png", tmp_path / target)
    assert left == []
    np.testing.assert_array_equal(pixels, a)
    again, metadata = image.read_with_metadata(tmp_path / target)
    np.testing.assert_array_equal(again, a)
    np.testing.assert_array_equal(metadata.alpha, alpha)
    if target == "b.tif" and dtype != np.uint8:
        np.testing.assert_array_equal(tifffile.imread(tmp_path / target), np.dstack([a, alpha]))
    if dtype == np.uint8:
        with Image.open(tmp_path / target) as picture:
            np.testing.assert_array_equal(np.asarray(picture), np.dstack([a, alpha]))
    assert travelled(tmp_path / "a.png", tmp_path / "b.jpg", None)[1] == ["transparency"]


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif", "a.gif"])
def test_transparency_of_others_is_kept_apart(tmp_path, rng, name):
    rgba = samples(rng, (8, 9, 4))
    rgba[..., 3] = np.where(rgba[..., 3] > 99, 255, 0) if name == "a.gif" else rgba[..., 3]
    options = {"lossless": True, "exact": True} if name == "a.webp" else {}
    Image.fromarray(rgba).save(tmp_path / name, **options)
    with Image.open(tmp_path / name) as picture:
        expected = np.asarray(picture.convert("RGBA"))
    pixels, metadata = image.read_with_metadata(tmp_path / name)
    np.testing.assert_array_equal(pixels, expected[..., :3])
    np.testing.assert_array_equal(metadata.alpha, expected[..., 3])
    refused(ValueError, r"transparent.*flatten.*read_with_metadata", image.read, tmp_path / name)


def test_transparency_turns_with_the_pixels_and_changes_depth(tmp_path, rng):
    a, alpha = samples(rng, (8, 9, 3)), samples(rng, (8, 9))
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(np.dstack([a, alpha])).save(tmp_path / "a.png", exif=exif)
    deep = np.dstack([a, alpha]).astype(np.uint16) * 257
    tag = {"extrasamples": ["unassalpha"], "extratags": [(274, "H", 1, 6, True)]}
    tifffile.imwrite(tmp_path / "a.tif", deep, photometric="rgb", **tag)
    for name in ("a.png", "a.tif"):
        pixels, metadata = image.read_with_metadata(tmp_path / name)
        assert metadata.orientation == 6
        scale = pixels.dtype.type(257 if name == "a.tif" else 1)
        np.testing.assert_array_equal(pixels, np.rot90(a, -1) * scale)
        image.write(tmp_path / "b.png", pixels, bits=16, metadata=metadata, overwrite=True)
        _, again = image.read_with_metadata(tmp_path / "b.png")
        np.testing.assert_array_equal(again.alpha, np.rot90(alpha, -1).astype(np.uint16) * 257)
        assert again.orientation == 1
    with pytest.raises(ValueError, match=r"alpha has shape \(9, 8\), the image \(4, 4\)"):
        image.write(tmp_path / "c.png", np.zeros((4, 4)), metadata=metadata)


def test_colours_that_are_mixed_with_transparency_are_refused(tmp_path, rng):
    rgba = samples(rng, (8, 9, 4), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", rgba, photometric="rgb", extrasamples=["assocalpha"])
    refused(ValueError, "not premultiplied", image.read_with_metadata, tmp_path / "a.tif")


# -- PNG ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [8, 16])
def test_texts_and_colour_space_of_a_png_go_along(tmp_path, rng, depth):
    info = PngImagePlugin.PngInfo()
    info.add_text("Title", "Meer")
    info.add_text("Comment", "long " * 100, zip=True)
    info.add_itxt("Author", "Äsop", "de", "Verfasser")
    info.add(b"cHRM", struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000))
    info.add(b"gAMA", struct.pack(">I", 45455))
    info.add(b"tIME", bytes(7))
    Image.fromarray(samples(rng, (8, 9, 3))).save(tmp_path / "a.png", pnginfo=info, dpi=(300, 150))
    pixels, metadata = image.read_with_metadata(tmp_path / "a.png")
    image.write(tmp_path / "b.png", pixels, metadata=metadata, bits=depth)
    with Image.open(tmp_path / "b.png") as picture:
        picture.load()
        assert picture.text == {"Title": "Meer", "Comment": "long " * 100, "Author": "Äsop"}
        assert (picture.text["Author"].lang, picture.info["gamma"]) == ("de", 0.45455)
        assert picture.info["chromaticity"][2:4] == (0.68, 0.32)
        assert [round(d) for d in picture.info["dpi"]] == [300, 150]
    assert image.writing.left_out("b.jpg", pixels, 8, metadata) == ["PNG texts", "PNG colour space"]


@pytest.mark.parametrize("depth", [8, 16])
def test_profile_and_exif_of_a_deep_png(tmp_path, rng, depth):
    exif = Image.Exif()
    exif.update({271: "Maker", 274: 1})
    metadata = image.Metadata(exif=exif.tobytes(), icc=PROFILE, dpi=(72, 72), chunks=((b"sRGB", b"\0"),))
    image.write(tmp_path / "a.png", samples(rng, (8, 9, 3), np.uint16), bits=depth, metadata=metadata)
    with Image.open(tmp_path / "a.png") as picture:
        picture.load()
        assert picture.info["icc_profile"] == PROFILE
        assert "srgb" not in picture.info  # a file names one or the other
        assert picture.getexif()[271] == "Maker"


# -- files of other programs -------------------------------------------------------------------------


def test_a_large_tiff_is_mapped_and_its_file_is_safe(tmp_path, rng, monkeypatch):
    a = samples(rng, (5, 30, 40), np.uint16)
    monkeypatch.setattr(reading, "_MAPPED", a.nbytes)
    forms = {"a.tif": {}, "big.tif": {"byteorder": ">"}, "packed.tif": {"compression": "zlib"}}
    for name, options in forms.items():
        tifffile.imwrite(tmp_path / name, a, photometric="minisblack", **options)
        before = (tmp_path / name).read_bytes()
        found = image.read(tmp_path / name, as_float=False)
        np.testing.assert_array_equal(found, a)
        assert found.dtype.isnative
        assert type(found) is np.ndarray
        mapped, part = False, found
        while part is not None:
            mapped, part = mapped or isinstance(part, np.memmap), getattr(part, "base", None)
        assert mapped == (name == "a.tif")
        found[:] = 0
        assert (tmp_path / name).read_bytes() == before


# -- the command line ----------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, capsys):
    """The command's lines for a picture in this folder, by their first words."""

    def reconstruct(source, target, *more):
        arguments = ["reconstruct", tmp_path / source, "-o", tmp_path / target, "--psf", "gaussian:3,0.7"]
        assert main([str(a) for a in [*arguments, *more]]) == 0
        return {line[:12].strip(): line[12:] for line in capsys.readouterr().out.splitlines()}

    return reconstruct


def test_a_transparent_png_keeps_its_transparency(tmp_path, rng, run):
    scene = np.stack([deblur.data.load("camera")[90:130, 100:150]] * 3, axis=-1)
    blurred = deblur.degrade(scene, deblur.psf.gaussian(3, 0.7), boundary="unknown", channel_axis=-1)
    alpha = np.full(blurred.shape[:2], 255, np.uint8)
    alpha[:9], alpha[9:12] = 0, 100
    metadata = image.Metadata(alpha=alpha)
    image.write(tmp_path / "in.png", blurred, metadata=metadata)
    said = run("in.png", "out.png", "--lam", "1e-3")
    with Image.open(tmp_path / "out.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture)[..., 3], alpha)
    assert "masked" in said  # transparent pixels are no data
    spoilt = blurred.copy()
    spoilt[:9] = rng.random(spoilt[:9].shape)
    image.write(tmp_path / "spoilt.png", spoilt, metadata=metadata)
    run("spoilt.png", "again.png", "--lam", "1e-3")
    seen = alpha > 0
    first, second = (np.asarray(Image.open(tmp_path / name))[seen] for name in ("out.png", "again.png"))
    np.testing.assert_array_equal(first, second)
    assert "masked" not in run("in.png", "linear.png", "--lam", "1e-3", "--method", "kronecker")
    assert run("in.png", "out.jpg", "--lam", "1e-3")["dropped"].endswith("transparency")
