"""Signatures read from the sources, and launches checked against them."""

import ast
import json
import re
import runpy
import sys
import types
import zipfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from refusals import refused

from deblur import cuda_sources, kernels, launches, pixelwise
from deblur.errors import NoGPUError
from deblur.methods import METHODS

PACKER = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "pack_machine_code.py"))
FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An own folder of sources; what was read from another is forgotten before and after."""

    def forget():
        for read in (
            cuda_sources._files, cuda_sources.source, cuda_sources.signatures, cuda_sources._constants,
            kernels._module, kernels._packed,
        ):  # fmt: skip
            read.cache_clear()
        kernels._kernels.clear()

    (tmp_path / "common.cuh").write_text("typedef long long index_t;\n")
    monkeypatch.setattr(cuda_sources, "source_folder", lambda: tmp_path)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    yield tmp_path
    forget()


SCALE = """
// extern "C" __global__ void in_a_comment(int x) {}
extern "C" __global__ void __launch_bounds__(256, 1)
scale(const real* __restrict__ x, long long ldx, real* y, int rows, int columns, real factor, unsigned int* count)
{
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x)
        y[i] = factor * x[i / columns * ldx + i % columns];
    if (threadIdx.x == 0 && count) *count = rows;
}
extern "C" __global__ void nothing() {}
"""


@pytest.fixture
def demo(folder):
    (folder / "demo.cu").write_text(SCALE)
    return folder


def test_every_file_of_the_project_can_be_read():
    assert {"cholesky", "gauss_jordan", "matmul", "triangular"} <= set(cuda_sources.stems())
    for stem in cuda_sources.stems():
        assert cuda_sources.signatures(stem), stem


def test_signature_is_the_one_declared(demo):
    signatures = cuda_sources.signatures("demo")
    assert set(signatures) == {"scale", "nothing"}
    assert signatures["nothing"] == ()
    assert [p[:3] for p in signatures["scale"]] == [
        ("x", "real", True),
        ("ldx", "long long", False),
        ("y", "real", True),
        ("rows", "int", False),
        ("columns", "int", False),
        ("factor", "real", False),
        ("count", "unsigned int", True),
    ]


def test_structure_is_passed_as_its_members(folder):
    (folder / "demo.cu").write_text(
        "struct Image {\n    const real* x;  // adjacent\n    long long ldx;\n    int rows, cols;\n};\n"
        'extern "C" __global__ void f(int first, const Image image, int last) {}'
    )
    parameters = cuda_sources.signatures("demo")["f"]
    assert [p.name for p in parameters] == ["first", "x", "ldx", "rows", "cols", "last"]
    assert [p.continues for p in parameters] == [False, False, True, True, True, False]


@pytest.mark.parametrize("declaration", ["struct thing x", "real** x", "std::size_t x", "char x"])
def test_type_that_cannot_be_passed_is_named(folder, declaration):
    (folder / "demo.cu").write_text(f'extern "C" __global__ void f({declaration}) {{}}')
    refused(ValueError, "demo.cu.*" + declaration.replace("*", r"\*").split()[0], cuda_sources.signatures, "demo")


def test_source_has_the_dtype_the_header_and_the_lines_of_each_file(demo):
    text = cuda_sources.source("demo", FLOAT32)
    assert text.startswith("using real = float;\n")
    assert cuda_sources.source("demo", np.dtype(np.float64)).startswith("using real = double;\n")
    header, body = text.index('#line 1 "common.cuh"'), text.index('#line 1 "demo.cu"')
    assert header < text.index("typedef") < body < text.index("scale")


def test_kernel_alone_is_the_file_without_the_others():
    for stem in cuda_sources.stems():
        whole = cuda_sources.source(stem, FLOAT32)
        text = re.compile('^extern "C" __global__ void', re.MULTILINE)
        assert len(text.findall(whole)) == len(cuda_sources.signatures(stem))
        for kernel in cuda_sources.signatures(stem):
            alone = cuda_sources.alone(stem, kernel, FLOAT32)
            assert len(text.findall(alone)) == 1
            assert alone.count("{") == alone.count("}")
            lines = zip(alone.split("\n"), whole.split("\n"), strict=True)
            assert {len(line) for line, full in lines if line != full} <= {0}


def test_unknown_file_lists_the_known(demo):
    refused(ValueError, "no kernel file 'other'.*demo", cuda_sources.source, "other", FLOAT32)


def test_header_that_a_file_includes_is_joined_and_read(folder):
    (folder / "part.cuh").write_text("constexpr int PART = 3;\n")
    (folder / "demo.cu").write_text('// A file.\n#include "part.cuh"\nconstexpr int WHOLE = 2 * PART;\n' + SCALE)
    text = cuda_sources.source("demo", FLOAT32)
    assert text.index('#line 1 "part.cuh"') < text.index("PART = 3") < text.index('#line 1 "demo.cu"')
    assert "#include" not in text
    lines = text[text.index('#line 1 "demo.cu"') :].splitlines()
    assert lines[3] == "constexpr int WHOLE = 2 * PART;"  # the third line, as in the file
    assert kernels.Constants("demo").WHOLE == 6


def test_constants_are_the_ones_declared(folder):
    (folder / "common.cuh").write_text(
        "constexpr bool IS_FLOAT = sizeof(real) == 4;\nconstexpr int V = 16 / sizeof(real);\n"
    )
    (folder / "demo.cu").write_text(
        """
/*
constexpr int COMMENTED = 1;
*/
constexpr int NB = 32;  // columns
constexpr int PITCH = NB + V, STEPS = IS_FLOAT ? 3 : NB > 16 ? 2 : 1;
constexpr real TINY = 1e-30;
constexpr int NEGATIVE = -7, UP = (NB + V - 1) / V * V;
template <int ROWS> constexpr int HELD = NB * ROWS / 4;
template <int M, int N, bool BOTH> constexpr int BYTES =
    ((M < N ? M : N) + HELD<8>) * sizeof(real)
    + (BOTH ? PITCH : 0);
#if __CUDA_ARCH__ >= 900
constexpr int UNSURE = 2;
#else
constexpr int UNSURE = V;
#endif
extern "C" __global__ void f() { constexpr int INSIDE = 5; }
    constexpr int INDENTED = 6;
"""
    )
    single, double = kernels.Constants("demo", np.float32), kernels.Constants("demo", "float64")
    assert (single.PITCH, single.STEPS, single.UP) == (36, 3, 32)
    assert (double.PITCH, double.STEPS, double.NEGATIVE) == (34, 2, -7)
    assert single.HELD(10) == 80
    assert single.BYTES(3, 5, True) == (3 + 64) * 4 + 36
    assert double.BYTES(9, 5, False) == (5 + 64) * 8
    assert kernels.Constants("demo").NB == 32
    with pytest.raises(AttributeError, match="demo.cu has no constant 'PITCH'; it has NB, NEGATIVE, HELD"):
        _ = kernels.Constants("demo").PITCH  # depends on the dtype
    for name in ("COMMENTED", "TINY", "UNSURE", "INSIDE", "INDENTED"):
        assert not hasattr(single, name)


def test_constant_that_cannot_be_read_is_named(folder):
    (folder / "demo.cu").write_text("constexpr int ODD = sizeof(struct thing);\n")
    refused(ValueError, "demo.cu: cannot read the constant ODD = sizeof", getattr, kernels.Constants("demo"), "ODD")


def test_no_python_file_gives_a_number_to_a_constant_of_a_kernel():
    looked_at = 0
    for path in Path(kernels.__file__).parent.rglob("*.py"):
        text = path.read_text()
        used = set(re.findall(r'kernels\.(?:get|launch|spread|blocks|Reduction|Constants)\(\s*"(\w+)"', text))
        names = {name for stem in used for name in cuda_sources._constants(stem, FLOAT32)}
        for node in ast.parse(text).body if used else ():
            if isinstance(node, ast.Assign):
                mirrored = names & {target.id for target in node.targets if isinstance(target, ast.Name)}
                assert not mirrored, f"{path.name} states {mirrored} by hand"
        looked_at += len(used)
    assert looked_at >= 9


def test_without_cupy_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    refused(NoGPUError, "pip install", kernels.launch, "cholesky", "mirror", 1, 1, dtype=np.float32)


# ---------------------------------------------------------------- machine code that ships with the package


def packed(folder, code, *, capability="sm_80", stem="demo", kernel="scale", dtype=FLOAT32):
    """`code` as what the package brings for a kernel of a file as it is now."""
    with zipfile.ZipFile(folder / kernels.PACKED, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(kernels.packed_name(stem, kernel, dtype, capability), code)


@pytest.mark.parametrize(
    ("made_for", "device", "served"),
    [
        ("sm_80", 80, True), ("sm_80", 86, True), ("sm_80", 75, False), ("sm_80", 90, False),
        ("sm_86", 80, False), ("sm_90a", 90, True), ("sm_90a", 100, False), ("sm_120", 121, True),
    ],
)  # fmt: skip
def test_shipped_machine_code_serves_its_generation(demo, made_for, device, served):
    packed(demo, b"code", capability=made_for)
    assert list(kernels._shipped("demo", "scale", FLOAT32, device)) == [b"code"] * served


def test_shipped_machine_code_serves_only_its_source_and_dtype(demo, monkeypatch):
    packed(demo, b"code")
    assert list(kernels._shipped("demo", "scale", FLOAT32, 80)) == [b"code"]
    assert not list(kernels._shipped("demo", "scale", np.dtype(np.float64), 80))
    assert not list(kernels._shipped("demo", "nothing", FLOAT32, 80))
    with monkeypatch.context() as other:
        other.setattr(kernels, "OPTIONS", ("-std=c++20",))
        assert not list(kernels._shipped("demo", "scale", FLOAT32, 80))
    (demo / "demo.cu").write_text(SCALE.replace("factor * x", "2 * factor * x"))
    for read in (cuda_sources._files, cuda_sources.source):
        read.cache_clear()
    assert not list(kernels._shipped("demo", "scale", FLOAT32, 80))


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damaged_machine_code_is_not_used(demo, damage):
    packed(demo, b"machine code " * 9)
    whole = (demo / kernels.PACKED).read_bytes()
    if damage == "missing":
        (demo / kernels.PACKED).unlink()
    else:
        at = whole.index(b".cubin") + 16
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] if damage == "flipped" else whole[:-30]
        (demo / kernels.PACKED).write_bytes(changed)
    assert not list(kernels._shipped("demo", "scale", FLOAT32, 80))


def test_what_calls_launch_is_recorded_and_compiled_by_threads(monkeypatch):
    record = json.loads(launches.RECORD.read_text())
    assert set(record) == {name + rule for name in ("auto", *METHODS) for rule in ("", " auto")}
    monkeypatch.setitem(vars(launches.cupy), "cuda", types.SimpleNamespace(Device=lambda number: nullcontext()))
    fakes = {"architecture": lambda: "sm_86", "machine_code": lambda *unit: unit, "PACKED": "missing.zip"}
    for name, fake in fakes.items():
        monkeypatch.setattr(kernels, name, fake)
    for call, known in record.items():
        launches.begin.__wrapped__(call, FLOAT32, 0)
        assert all(kernel in cuda_sources.signatures(stem) for stem, kernel, *_ in known if stem != "pixelwise")
        assert len(kernels.begun) == len(known)
        assert all(future.result() == unit for unit, future in kernels.begun.items())
        kernels.begun.clear()
    monkeypatch.setattr(kernels, "PACKED", "common.cuh")  # a file that is there: as if a wheel had brought it
    launches.begin.__wrapped__("tv", FLOAT32, 0)
    assert all("pixelwise" in text for text, *_ in kernels.begun)
    kernels.begun.clear()


@pytest.mark.parametrize("accepted", [True, False])
def test_a_kernel_is_compiled_only_if_the_driver_refuses_the_shipped_code(demo, monkeypatch, accepted):
    """With a driver, a device and a compiler that are made up."""
    cuda = {name: types.ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.function")}
    refusal = type("CUDADriverError", (RuntimeError,), {})
    cuda["cupy.cuda"].driver = types.SimpleNamespace(CUDADriverError=refusal)
    loaded = []

    class Module:
        def load(self, code):
            loaded.append(code)
            if code == b"shipped" and not accepted:
                raise refusal("no binary for GPU")

    cuda["cupy.cuda.function"].Module = Module
    for name, module in cuda.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(kernels, "properties", lambda device: kernels.Properties(132, 86, 1 << 16, 1 << 22))
    monkeypatch.setattr(kernels, "architecture", lambda: "sm_86")
    monkeypatch.setattr(kernels, "machine_code", lambda *unit: b"compiled")
    packed(demo, b"shipped")
    assert isinstance(kernels._module("demo", "scale", FLOAT32, 0), Module)
    assert loaded == [b"shipped"] + [b"compiled"] * (not accepted)


def test_without_a_compiler_nothing_is_packed_and_a_message_says_so(monkeypatch, tmp_path, capsys):
    stale = tmp_path / "machine_code.zip"
    stale.write_bytes(b"of yesterday")
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["machine_code", "--output", str(stale)])
    PACKER["main"]()
    assert not stale.exists()
    (said,) = capsys.readouterr().out.splitlines()
    assert "no machine code" in said
    assert "compiled when first launched" in said


def test_packed_code_is_that_of_the_compiler(demo):
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.nvrtc.getVersion()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"NVRTC is not there ({error})")
    PACKER["pack"](demo / kernels.PACKED, ["sm_80"])
    (code,) = kernels._shipped("demo", "scale", FLOAT32, 89)
    assert code.startswith(b"\x7fELF")
    assert b"scale" in code
    assert b"nothing" not in code


# ---------------------------------------------------------------- on a GPU


@pytest.fixture
def scale(demo, cupy):
    def call(x, ldx, y, *args, dtype=np.float32):
        kernels.launch("demo", "scale", 1, 64, x, ldx, y, *args, dtype=dtype)

    return call


@pytest.mark.gpu
def test_launch_computes(scale, cupy, dtype):
    whole = cupy.random.standard_normal((7, 9)).astype(dtype)
    y, count = cupy.full((5, 3), np.nan, dtype), cupy.zeros(1, np.uint32)
    scale(whole[1:6, 2:5], 9, y, 5, 3, 2.5, count, dtype=dtype)
    np.testing.assert_allclose(y.get(), 2.5 * whole[1:6, 2:5].get(), rtol=1e-6)
    assert int(count[0]) == 5


@pytest.mark.gpu
def test_members_of_a_structure_arrive(folder, cupy):
    (folder / "demo.cu").write_text(
        "struct Numbers {\n    int a;\n    double b;\n    real* out;\n    int c, d;\n};\n"
        'extern "C" __global__ void f(int first, const Numbers n, int between, const Numbers other) {\n'
        "    n.out[0] = first + 10 * n.a + 100 * n.b + 1000 * n.c + 10000 * n.d;\n"
        "    other.out[0] = between + 10 * other.a + 100 * other.b + 1000 * other.c + 10000 * other.d;\n}\n"
    )
    x, y = cupy.zeros(1), cupy.zeros(1)
    kernels.launch("demo", "f", 1, 1, 1, 2, 3.0, x, 4, 5, 6, 7, 8.0, y, 9, 1, dtype=np.float64)
    assert (float(x[0]), float(y[0])) == (54321.0, 19876.0)


@pytest.mark.gpu
def test_spread_reaches_every_element(folder, cupy):
    (folder / "demo.cu").write_text(
        "constexpr int THREADS = 64;\n"
        'extern "C" __global__ void f(real* x, int size) {\n'
        "    for (int i = blockIdx.x * THREADS + threadIdx.x; i < size; i += gridDim.x * THREADS)\n"
        "        x[i] += 1;\n}\n"
    )
    for size in (1, 64, 65, 10**6):
        x = cupy.zeros(size, np.float32)
        kernels.spread("demo", "f", size, x, size, dtype=np.float32)
        assert bool((x == 1).all())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda a, cp: a[:-1], TypeError, "takes 7 arguments.*not 6"),
        (lambda a, cp: [a[0].get(), *a[1:]], TypeError, "'x' must be a CuPy array.*ndarray"),
        (lambda a, cp: [a[0].astype(np.float64), *a[1:]], TypeError, "'x' must be.*float32.*of float64"),
        (lambda a, cp: [a[0].T, *a[1:]], ValueError, "'x' must be.*adjacent elements"),
        (lambda a, cp: [a[0], 5, *a[2:]], ValueError, "'x'.*rows 5 elements apart"),
        (lambda a, cp: [*a[:2], a[2][:, ::2], *a[3:]], ValueError, "'y' must be.*C-contiguous"),
        (lambda a, cp: [*a[:3], 2**31, *a[4:]], TypeError, "rows=2147483648"),
        (lambda a, cp: [*a[:3], 1.5, *a[4:]], TypeError, "rows=1.5"),
    ],
)  # fmt: skip
def test_wrong_argument_is_refused(scale, cupy, change, error, text):
    good = [cupy.ones((4, 6), np.float32), 6, cupy.zeros((4, 6), np.float32), 4, 6, 1.0, None]
    refused(error, text, scale, *change(good, cupy))


@pytest.mark.gpu
def test_source_that_does_not_compile_shows_the_log(folder, cupy):
    (folder / "demo.cu").write_text('extern "C" __global__ void f(real* x) { *x = undeclared; }')
    with pytest.raises(RuntimeError, match=r'demo.cu\(1\).*"undeclared" is undefined'):
        kernels.launch("demo", "f", 1, 1, None, dtype=np.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("good", [True, False])
def test_launch_with_shipped_machine_code(scale, folder, cupy, good):
    """What the driver refuses is compiled, and nothing else is; NumPy's scalars and a null pointer pass."""
    code, _ = kernels.compile_source(cuda_sources.alone("demo", "scale", FLOAT32), "demo.cu", kernels.architecture())
    number = kernels.properties(0).capability
    packed(folder, code if good else b"no machine code", capability=f"sm_{number}{'a' if number == 90 else ''}")
    x, y = cupy.ones((2, 2), np.float32), cupy.zeros((2, 2), np.float32)
    scale(x, np.int32(2), y, np.int64(2), True + 1, np.float64(3), None)
    assert (y == 3).all()
    assert good != any((folder / "cache").glob("deblur-*.cubin"))


@pytest.mark.gpu
def test_kernels_of_a_file_are_compiled_one_by_one_and_found_by_a_second_process(demo, cupy):
    x, y = cupy.ones((2, 2)), cupy.zeros((2, 2))
    kernels.launch("demo", "scale", 1, 64, x, 2, y, 2, 2, 3.0, None, dtype=np.float64)
    assert (y == 3).all()
    (written,) = (demo / "cache").glob("*.cubin")
    assert written.name.startswith("deblur-demo.scale-")
    text = cuda_sources.alone("demo", "scale", np.dtype(np.float64))
    assert kernels.machine_code(text, "demo.scale", kernels.architecture()) == written.read_bytes()


@pytest.mark.gpu
def test_resident_blocks_bound_a_cooperative_launch(demo, cupy):
    kernel = kernels.get("demo", "nothing", np.float32)
    resident = kernel.resident_blocks(1024, 100 << 10)
    kernel(resident, 1024, shared_mem=100 << 10, cooperative=True)
    refused(cupy.cuda.driver.CUDADriverError, ".", kernel, resident + 1, 1024, shared_mem=100 << 10, cooperative=True)


@pytest.mark.gpu
def test_dtype_other_than_the_two_is_refused(cupy):
    refused(TypeError, "float32 or float64, not float16", kernels.get, "cholesky", "mirror", np.float16)


@pytest.mark.gpu
def test_unknown_kernel_lists_the_known(demo, cupy):
    refused(ValueError, "no kernel 'other'.*scale", kernels.get, "demo", "other", np.float32)


# ---------------------------------------------------------------- texts of operations on pixels


def test_operations_that_a_kernel_lacks_are_refused_by_name():
    for function, kinds, name in (
        (lambda xp, x: xp.arctan2(x, 1), ["f*"], "arctan2 of float32, 1"),
        (lambda xp, x: x**0.5, ["f*"], "power of float32, 0.5"),
        (lambda xp, x, y: xp.add.outer(x, y), ["f*", "f*"], "outer of float32, float32"),
        (lambda xp, z, x: x / z, ["F*", "f*"], "divide of float32, complex64"),
    ):
        refused(TypeError, name, pixelwise.source, function, kinds, 0)


def test_numbers_in_a_kernel_are_those_of_numpy():
    text = pixelwise.source(lambda xp, x: (x * xp.inf, x * -xp.inf, x * xp.nan, x / 2), ["i*"], 0)[0]
    assert re.findall(r"_double\((\S+)ll\)", text) == ["0x7ff0000000000000", "-0x10000000000000", "0x7ff8000000000000"]
    assert "(double)v0 / (double)0x1.0000000000000p+1" in text  # C++ would divide integers without a remainder


def test_an_argument_that_a_kernel_changes_must_hold_the_values(monkeypatch):
    changed = pixelwise.source(pixelwise.stored.__wrapped__, ["f*", "f*"], 0)[2]
    known = MagicMock(__contains__=lambda *_: True, __getitem__=lambda *_: (None, [], changed, "stored"))
    for name, fake in {"is_cupy": lambda x: True, "cupy": MagicMock(), "_kernels": known}.items():
        monkeypatch.setattr(pixelwise, name, fake)
    refused(ValueError, r"0 of stored.*\(1, 3\).*\(5, 3\)", pixelwise.stored, np.zeros((1, 3)), np.ones((5, 3)))
