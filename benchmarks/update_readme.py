"""Copy the measured figures into README.md and the pages under docs/, between their markers.

    python benchmarks/update_readme.py            rewrites them
    python benchmarks/update_readme.py --check    fails if they are not what the results say

Nothing is measured here: every figure comes from benchmarks/results/*.json, each written by the script named
beside its table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def load(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def source(script: str, record: dict[str, Any]) -> str:
    """Where the table comes from: script, machine, versions and commit."""
    e = record["environment"]
    machine = e["gpu"]["name"] if e.get("gpu") else f"{e['cpu']}, {e['cpus_usable']} cores"
    packages = e["packages"]
    named = ("numpy", "scipy", "scikit-image") if not e.get("gpu") else ("cupy-cuda13x", "torch", "jax")
    versions = ", ".join(f"{name} {packages[name]}" for name in named if name in packages)
    driver = f", driver {e['gpu']['driver'].splitlines()[0]}" if e.get("gpu") else ""
    changed = " with uncommitted changes" if e.get("uncommitted_changes") else ""
    limits = "".join(f", {k}={v}" for k, v in sorted((e.get("thread_limits") or {}).items()))
    return (
        f"*`benchmarks/{script}`, {e['date']}, commit {str(e['commit'])[:7]}{changed}, {machine}{driver}, "
        f"{versions}{limits}.*"
    )


def scientific(x: float | None) -> str:
    return "–" if x is None else f"{x:.0e}".replace("e-0", "e-")


def milliseconds(x: float) -> str:
    ms = 1e3 * x
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


# ---------------------------------------------------------------------------------------------


def core() -> str:
    record = load("core")
    r = record["results"]
    lambdas = [key for key in r["agreement"][0] if key.startswith("lambda")]
    rows = []
    for row in r["agreement"]:
        failed = row["refused or reported as failed"]
        rows.append([row["method"], row["dtype"], *(scientific(row[k]) for k in lambdas), str(failed or "")])
    head = ["method", "dtype", *(k.replace("lambda", "λ =") for k in lambdas), "reported as failed"]
    cholesky, assembly = r["cholesky"], r["sparse"]
    return (
        "**Agreement.** The largest relative difference of each method from a dense float64 solve at "
        f"{r['size']} × {r['size']} pixels, over three PSFs, all boundaries and both formulas that it serves. "
        "A solve that the method or the "
        "judge reports as failed is counted in the last column and gives no image.\n\n"
        + table(head, rows)
        + f"\n\nAt n = {cholesky['n']} `cholesky` takes {cholesky['ratio, same matrix']:.2f} times SciPy's "
        f"`cho_factor` + `cho_solve` on the same matrix. `filter2matrix` with a 9 × 9 PSF builds the sparse H of "
        f"64 × 64 pixels in {milliseconds(assembly['median_s'])} ms, and `import deblur` takes "
        f"{r['import']['difference']:.2f} s more than `import scipy.linalg`.\n\n"
        + source("bench_core.py", record)
    )


def linalg() -> str:
    record = load("cpu_linalg")
    rows = [
        [row["what"], str(row["n"]), row["peer"], f"{row['ratio']:.2f}", scientific(row["difference"])]
        for row in record["results"]
    ]
    return (
        "**Dense linear algebra on the CPU.** Time over that of the peer, in one run.\n\n"
        + table(["`deblur.linalg`", "n", "peer", "time ratio", "relative difference"], rows)
        + "\n\n"
        + source("bench_cpu_linalg.py", record)
    )


def structured() -> str:
    record = load("structured")
    r = record["results"]
    rows = [
        [
            t["method"],
            t["psf"],
            t["boundary"],
            f"{t['lambda']:g}",
            f"{t['cold_ratio']:.1f}",
            f"{t['kept_ratio']:.1f}",
            str(t["iterations"]) if t["iterations"] else "direct",
        ]
        for t in r["times"]
    ]
    large = r["large"]
    return (
        "**Large images.** Time for 1024 × 1024 pixels in float64, to a relative residual of 1e-8, over that of one "
        "call of scikit-image's `wiener` in the same run; *kept* is the second frame of a `Deblurrer`.\n\n"
        + table(["method", "PSF", "boundary", "λ", "first frame", "kept", "iterations"], rows)
        + f"\n\n{large['size']} × {large['size']} pixels in float32 with a {large['psf']} PSF: "
        f"{large['seconds']:.0f} s and {large['peak_bytes'] / 2**30:.1f} GiB at the peak, {large['iterations']} "
        "iterations.\n\n" + source("bench_structured.py", record)
    )


def house() -> str:
    record = load("house")
    rows = [
        [
            t["cell"],
            milliseconds(t["before_s"]),
            milliseconds(t["after_s"]),
            f"{t['ratio']:.2f}",
            f"{t['least']:.2f} to {t['most']:.2f}",
        ]
        for t in record["results"]["cells"]
    ]
    return (
        "**Before and after the move into one house.** Milliseconds of the public calls, two checkouts in turns on one "
        f"machine; *before* is commit {record['settings']['before'][:7]}. `hybrid-lsqr` takes more steps, because its "
        "stop now follows the image's error.\n\n"
        + table(["method, pixels a side, PSF, boundary", "before", "after", "ratio", "spread"], rows)
        + "\n\n"
        + source("bench_house.py", record)
    )


def everyday() -> str:
    record = load("gpu_everyday")

    def called(t: dict[str, Any]) -> str:
        frames = f"{t['frames']} × " if t.get("frames", 1) > 1 else ""
        return f"{t['method']} {frames}{t['side']}²" + (f", λ {t['lam']}" if t["lam"].isalpha() else "")

    def number(value: float | None, digits: int = 1) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    rows = [
        [
            called(t),
            str(t["iterations"]) if t["iterations"] else "direct",
            *(
                number(t[f"{name}_median"])
                + (f" (≤ {t[asked]:g})" if t.get(asked := f"{name}_asked") else "")
                for name in ("cold", "kept")
            ),
            number(t.get("kept_device", t.get("device"))),
            number(t.get("cold_slowed")),
            number(t["floor"], 2),
            number(t["cpu"], 0),
            number(t["cpu"] and t["cpu"] / t["cold_median"], 0),
        ]
        for t in record["results"]
    ]
    small = [
        [called(t), f"{t['cold']:.1f}", number(t["cpu"], 0), number(t["cpu"] and t["cpu"] / t["cold"])]
        for t in record["settings"].get("small", [])
    ]
    header = ["iterations", "cold", "kept", "device", "slowed", "floor", "CPU", "CPU / GPU"]
    parts = [
        "**On a GPU: everyday methods.** Milliseconds in float32: a whole call with a new PSF and a new image, the "
        "same with the factor kept (in brackets what is asked for), how long the device is busy in that, the first "
        "with this process on one core that another busy one shares, and the least that the method's transforms and "
        "passes over the image cost, launched one by one: of small images a replayed graph costs less. The CPU's "
        "column is the cold call on two cores of the same machine.",
        table(["method", *header], rows),
        "Cold calls of small pictures." if small else "",
        table(["method", "GPU", "CPU", "CPU / GPU"], small) if small else "",
        first_calls(),
        source("bench_gpu_everyday.py", record),
    ]
    return "\n\n".join(part for part in parts if part)


def first_calls() -> str:
    record = load("first_calls")
    roads = {"": "checkout", "_wheel": "wheel"}
    if "empty_cache_wheel" not in record["results"][0]:
        del roads["_wheel"]
    rows = [
        [
            t["method"],
            *(f"{t[f'empty_cache{road}']:.1f}" for road in roads),
            *(f"{t[f'full_cache{road}']:.2f}" for road in roads),
            *(str(t[f"compiled{road}"]) for road in roads),
        ]
        for t in record["results"]
    ]
    names = [f", {roads[road]}" if len(roads) > 1 else "" for road in roads]
    header = [what + name for what in ("empty caches", "full", "compilations") for name in names]
    return (
        "Seconds of a process's first call, 128² (dense methods: 32²) with λ given, and of one with no option at all, "
        "when everything must be compiled and when nothing need be; and how often the compiler is called in the first "
        f"case. Importing CuPy and deblur, with a context, takes {record['results'][0]['imports']:.1f} s before.\n\n"
        + table(["method", *header], rows)
        + "\n\n"
        + source("bench_first_calls.py", record)
    )


def lam() -> str:
    record = load("lambda_choice")
    rows = [
        [
            rule,
            f"{s['median_loss_db']:.2f}",
            f"{s['loss_db_95th_percentile']:.2f}",
            f"{100 * s['share_within_2_db']:.0f} %",
            f"{s['worst_loss_db']:.1f}",
        ]
        for rule, s in record["results"]["summary"]["all"].items()
    ]
    cases = next(iter(record["results"]["summary"]["all"].values()))["cases"]
    return (
        f"**λ chosen for you.** PSNR lost against the best λ, in dB, over {cases} cases of image, PSF, noise level "
        "and boundary. *As published* is the rule for the error of the data instead of the scene's.\n\n"
        + table(["rule", "median", "95th percentile", "within 2 dB", "worst"], rows)
        + "\n\n"
        + source("bench_lambda.py", record)
    )


def boundary() -> str:
    record = load("boundary")
    cases = len(record["results"]["cases"])
    rows = [
        [
            s["method"],
            f"{s['mean_psnr_db']:.2f}",
            f"{s['worst_gain_over_input_db']:+.2f}",
            f"{s['cases_below_input']} of {cases}",
        ]
        for s in record["results"]["summary"]
    ]
    return (
        f"**Photographs whose scene goes on beyond the frame.** {cases} cases. *best* means the parameter was found "
        'with the truth at hand; *towards zero* is `prior="zero"`, without it `prior="smooth"`.\n\n'
        + table(["method", "mean PSNR, dB", "worst gain over the input, dB", "below the input"], rows)
        + "\n\n"
        + source("bench_boundary.py", record)
    )


def psf() -> str:
    record = load("psf")
    r, settings = record["results"], record["settings"]
    names = {
        "points": "stars, 12 to 40",
        "edge": "one slanted edge",
        "edges": "two slanted edges, an ellipse",
        "pair": "sharp and blurred picture",
        "picture": "blurred picture alone: defocus, motion",
    }
    rows = [
        [
            names[source],
            str(s["cases"]),
            str(s["refused"] + s["doubtful"]),
            f"{100 * s['error_median']:.1f}",
            f"{100 * s['error_90']:.1f}",
            f"{100 * s['within_twice_told']:.0f}",
            f"{s['loss_median_db']:.2f}",
            f"{s['loss_90_db']:.2f}",
            f"{100 * s['gain_kept_median']:.0f}",
        ]
        for source, s in r["sources"].items()
    ]
    head = [
        "PSF from",
        "cases",
        "refused or doubtful",
        "error, %",
        "90 % below, %",
        "within twice what is told, %",
        "loss, dB",
        "90 % below, dB",
        "gain kept, %",
    ]
    said = {
        "right": "the right one",
        "turned": "turned by 180°",
        "mirrored": "mirrored",
        "resized": "0.6 to 1.7 times its size",
        "foreign": "of another picture",
    }
    trials = [
        [said[label], str(t["trials"]), str(t["alarms"]), str(t["fits"])] for label, t in r["check"].items()
    ]
    return (
        "**PSFs from data.** Synthetic cases on pictures that no method was tuned on. *Error* is "
        "‖h − truth‖/‖truth‖, the median; *loss* the PSNR of a restoration with the estimate below that with the true "
        "PSF, and *gain kept* the part of the latter's gain over the blurred picture, both of the cases that are "
        "neither refused nor called doubtful.\n\n"
        + table(head, rows)
        + f"\n\n`deblur.psf.check` of {settings['checks']} pictures, as floats, 8 bits and JPEG, with their right "
        "PSF and with wrong ones; its allowance for JPEG was set on the same photographs with other PSFs. "
        "A Gaussian's size leaves nothing to see, and a symmetric PSF is its own turn.\n\n"
        + table(["PSF", "trials", "said not to fit", "said to fit"], trials)
        + _warned(r)
        + "\n\n"
        + source("bench_psf.py", record)
    )


def _warned(r: dict) -> str:
    """How often `reconstruct` warns, and what that takes."""
    if "warnings" not in r:
        return ""
    counts = {label: f"{c['warned']} of {c['trials']}" for label, c in r["warnings"].items()}
    shares = ", ".join(f"{100 * s['share']:.0f} % at {s['side']} × {s['side']}" for s in r["warning seconds"])
    return (
        f"\n\n`reconstruct` warns in {counts['right']} cases with the right PSF (seven forms of pictures, some with a "
        f"tone curve; five boundaries), in {counts['turned']} where it was turned by 180°, and in {counts['resized']} "
        f"where it was taken for pixels of another size. The look takes {shares} of a call with nothing but the PSF."
    )


def auto_boundary() -> str:
    record = load("auto_boundary")
    read = record["results"]["boundaries"]
    rows = [
        [
            s["boundary"],
            str(s["cases"]),
            str(s["tellable"]),
            *(str(s[f"taken for {b}"]) for b in ("zero", "periodic", "unknown")),
            f"{s['mean_loss_db']:.2f}",
            f"{s['worst_loss_db']:.2f}",
        ]
        for s in read["summary"]
    ]
    return (
        f"**The boundary, read off the picture.** {sum(s['cases'] for s in read['summary'])} crops of photographs "
        "that had no part in making it, 64² to 512², noise from 0 to 0.05. *Tellable* are those in which the "
        "surroundings change the picture by more than noise hides. The loss is against the boundary named, in dB, "
        f"60 dB being perfect; {read['mean_loss_db']:.3f} in the mean.\n\n"
        + table(
            [
                "blurred with",
                "cases",
                "tellable",
                "taken for zero",
                "periodic",
                "unknown",
                "mean loss",
                "worst",
            ],
            rows,
        )
        + "\n\n"
        + nothing_given(record["results"].get("nothing_given"))
        + source("bench_auto_boundary.py", record)
    )


def nothing_given(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    s = found["summary"]
    return (
        f"**Nothing given.** `deblur.reconstruct(g, psf)` in {s['cases']} crops of other photographs whose scene goes "
        f"on beyond the frame, in dB in the mean: the blurred input {s['mean_input_db']:.2f}, scikit-image's `wiener` "
        "after smooth padding at its best parameter, found with the truth at hand, "
        f"{s['mean_padded_wiener_db']:.2f}, the call {s['mean_ours_db']:.2f}. More than 0.1 dB below its input in "
        f"{s['below_input']}; the least gain is {s['worst_gain_db']:.2f} dB.\n\n"
    )


def varying() -> str:
    record = load("varying")
    r = record["results"]

    def shown(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    rows = [
        [
            row["operator"],
            shown(row["terms"], "d"),
            shown(row["error"], ".1e"),
            shown(row["iterations"], "d"),
            f"{row['psnr']:.2f}",
        ]
        for row in r["table"]
    ]
    counts = [
        [c["psf"], f"{c['lam']:g}", str(c["terms"]), str(c["varying"]), str(c["one"]), f"{c['ratio']:.1f}"]
        for c in r["iterations"]
    ]
    fields = r["telescope"]
    gains = ", ".join(
        f"{sum(f['gain'][name] for f in fields) / len(fields):+.2f} dB with {name}"
        for name in fields[0]["gain"]
    )
    kept = sorted(100 * f["kept"] for f in fields)
    speed = load("varying_speed")
    said = "; ".join(
        f"{name} {milliseconds(cell['median_s'])} ms" for name, cell in speed["results"]["product"].items()
    )
    slower = [
        [
            row["boundary"],
            *(
                f"{row[name]['seconds']:.1f} s, {row[name]['iterations']} iterations"
                for name in ("one PSF", "six eigen-PSFs")
            ),
            f"{row['ratio']:.1f}",
        ]
        for row in speed["results"]["tv"]
    ]
    side = speed["results"]["tv"][0]["side"]
    return (
        "**A PSF that varies.** `camera` at 256 × 256, blurred by an elliptical Gaussian whose widths change from 0.9 "
        "to 2.2 across the frame, each pixel by its own, and restored with λ = 0.01 and the same formula by each "
        "operator; *error* is that of H f over the deviation of H f.\n\n"
        + table(["operator", "convolutions", "error", "iterations", "PSNR"], rows)
        + "\n\nIterations of conjugate gradients to a residual of 1e-6, where the scene goes on beyond the frame; the "
        "eigen-PSFs are taken to a tolerance of 1 %.\n\n"
        + table(["PSF", "λ", "convolutions", "iterations", "with the mean PSF alone", "ratio"], counts)
        + f"\n\nA telescope's field with coma and defocus, 512 × 512, restored with nothing else given, in the mean of "
        f"{len(fields)} fields: {gains}. The PSFs were measured from {min(f['stars'] for f in fields)} to "
        f"{max(f['stars'] for f in fields)} of 100 stars with noise, and keep {kept[0]:.0f} to {kept[-1]:.0f} % of "
        f"what is gained with the true ones.\n\n`tv` at {side} × {side} in float32, in seconds of one core:\n\n"
        + table(["boundary", "the mean PSF alone", "and six eigen-PSFs", "times"], slower)
        + f"\n\nOne product at 512 × 512 with 25 PSFs: {said}.\n\n"
        + source("bench_varying.py", record)
        + "\n\n"
        + source("bench_varying_speed.py", speed)
    )


def blind() -> str:
    record = load("blind")
    summary, cases = record["results"]["summary"], record["results"]["cases"]
    rows = []
    for noise in sorted({c["noise"] for c in cases}):
        some = [c for c in cases if c["noise"] == noise]
        ratios = [c["error ratio"] for c in some]
        rows.append(
            [
                f"{noise:g}",
                str(len(some)),
                f"{sorted(ratios)[len(ratios) // 2]:.1f}",
                *(f"{100 * sum(r <= most for r in ratios) / len(ratios):.0f}" for most in (2, 3)),
                *(
                    f"{sum(c['psnr'][name] for c in some) / len(some):.1f}"
                    for name in ("blurred", "blind", "known PSF")
                ),
            ]
        )
    head = ["noise", "cases", "error ratio, median", "at most 2, %", "at most 3, %"]
    return (
        f"**Without a PSF.** `deblur.blind` on {summary['cases']} pictures of 256 × 256, shaken along paths of 9 to 21 "
        "pixels that were not used for tuning. The *error ratio* is that of the squared errors with the estimated PSF "
        "and with the true one, both restored by `tv` with λ chosen by itself; the other columns are PSNR in dB.\n\n"
        + table([*head, "blurred", "restored", "with the true PSF"], rows)
        + f"\n\nOf all, {100 * summary['ratio at most 2']:.0f} % are within 2 and "
        f"{100 * summary['ratio at most 3']:.0f} % within 3. {100 * summary['trusted']:.0f} % of the PSFs are called "
        f"trustworthy, and {100 * summary['ratio at most 3 where trusted']:.0f} % of these are within 3. With little "
        "noise the true PSF restores so well that what is wrong with the estimate counts for more. "
        f"{100 * summary['better than the blurred picture']:.0f} % are better than the blurred picture; one "
        f"takes {summary['median seconds']:.0f} s on one core, {summary['most seconds']:.0f} s at most.\n\n"
        + source("bench_blind.py", record)
    )


def gpu() -> str:
    inverse, qr, product = load("gpu_inverse"), load("gpu_qr"), load("gpu_matmul")
    rows = []
    for size in inverse["results"]["sizes"]:
        for ours, verdict in size["verdicts"].items():
            taken, peer = size["times"][ours]["median_s"], size["times"][verdict["peer"]]["median_s"]
            rows.append(
                [
                    ours,
                    size["dtype"],
                    str(size["n"]),
                    milliseconds(taken),
                    milliseconds(size["floors_s"][ours]) if "floors_s" in size else "–",
                    f"{milliseconds(peer)} ({verdict['peer']})",
                    f"{peer / taken:.1f}",
                ]
            )
    inverses = table(["`deblur.linalg`", "dtype", "n", "ms", "floor, ms", "peer, ms", "times faster"], rows)
    rows = []
    for name, case in inverse["results"]["reconstruct"].items():
        rows.append(
            [
                name,
                milliseconds(case["times"]["reconstruct"]["median_s"]),
                f"{case['thesis_matlab_inverse_s']:g} s",
                scientific(case["relative_difference_to_pcg"]),
            ]
        )
    calls = table(
        ["image", "`reconstruct`, ms", "MATLAB's inverse in the thesis", "relative difference from `pcg`"],
        rows,
    )
    rows = []
    for p in product["results"]["products"]:
        if (
            p["product"] == "general"
            and p["dtype"] == "float32"
            and p["engine"] in ("cublas", "split", "half")
        ):
            rows.append(
                [
                    p["engine"],
                    str(p["n"]),
                    f"{p['tflops']:.0f}",
                    f"{p['times_cublas']:.2f}",
                    scientific(p["relative_error"]),
                ]
            )
    products = table(["engine", "n", "TFLOP/s", "times cuBLAS float32", "relative error"], rows)
    rows = []
    for c in qr["results"]["grid"]:
        errors = c["errors_over_sqrt_n_eps"]
        rows.append(
            [
                f"{c['rows']} × {c['columns']}",
                str(c["batch"]),
                c["kernel"],
                milliseconds(c["times"]["ours"]["median_s"]),
                f"{c['speedup_over_best']:.1f} ({c['best_peer']})",
                f"{errors['orthogonality']:.1f}, {errors['backward']:.2f}",
            ]
        )
    qrs = table(
        [
            "matrix",
            "batch",
            "kernel",
            "ms",
            "times faster than the best of torch, CuPy, JAX",
            "errors / (√n eps)",
        ],
        rows,
    )
    return (
        "**On a GPU: inverses and factorisations.** The floor is the operations at the rate of a product of the same "
        "run.\n\n"
        + inverses
        + "\n\nThe whole call on a CuPy image, with the matrix built, factored and judged (method `cholesky`):\n\n"
        + calls
        + "\n\n"
        + slowed(inverse["results"])
        + source("bench_gpu_inverse.py", inverse)
        + of_other_commits(inverse)
        + "\n\n**On a GPU: float32 products.** `split` adds three TF32 products of split operands in float32 outside "
        "the tensor cores; `half` does the same with float16 parts.\n\n"
        + products
        + "\n\n"
        + source("bench_gpu_matmul.py", product)
        + "\n\n**On a GPU: QR in float32, reduced Q and R.** Errors are of orthogonality and of QR − A.\n\n"
        + qrs
        + "\n\n"
        + swept(qr["results"])
        + source("bench_gpu_qr.py", qr)
        + of_other_commits(qr)
    )


def of_other_commits(record: dict[str, Any]) -> str:
    """The parts that were not measured again."""
    kept = record["settings"].get("kept", {})
    return "".join(f" *Not measured again: {part}, commit {commit[:7]}.*" for part, commit in kept.items())


def slowed(results: dict[str, Any]) -> str:
    """What a slow host changes of the inverses."""
    if "slowed" not in results:
        return ""
    cells = [
        [
            ours,
            size["dtype"],
            str(size["n"]),
            milliseconds(size["times"][ours]["median_s"]),
            f"{milliseconds(size['times'][verdict['peer']]['median_s'])} ({verdict['peer']})",
            f"{1 / verdict['ratio']:.1f}",
        ]
        for size in results["slowed"]
        for ours, verdict in size["verdicts"].items()
    ]
    header = ["`deblur.linalg`, host slowed", "dtype", "n", "ms", "peer, ms", "times faster"]
    return table(header, cells) + "\n\n"


def swept(results: dict[str, Any]) -> str:
    """What the sweep of single matrices found, and what a slow host changes."""
    if "sweep" not in results:
        return ""
    rows = results["sweep"]
    ratios = sorted(x["speedup_over_best"] for x in rows)
    slower = [x for x in rows if x["speedup_over_best"] < 1]
    named = ", ".join(
        f"{x['rows']} × {x['columns']} in {x['dtype']} ({x['speedup_over_best']:.2f})" for x in slower
    )
    which = f"{len(slower)}: {named}" if slower else "none"
    worst = max(x["errors_over_sqrt_n_eps"]["orthogonality"] for x in rows)
    said = (
        f"Of {len(rows)} shapes of one matrix, square, tall and wide, with sides from 16 to 10000, in both dtypes, "
        f"`qr` is {ratios[0]:.2f} to {ratios[-1]:.1f} times as fast as the best of the three (median "
        f"{ratios[len(ratios) // 2]:.1f}), and slower in {which}. Its error of "
        f"orthogonality is at most {worst:.1f} √n eps."
    )
    cells = [
        [
            f"{x['rows']} × {x['columns']}",
            milliseconds(x["times"]["ours"]["median_s"]),
            milliseconds(x["times"]["ours"]["device_s"]),
            f"{x['speedup_over_best']:.1f} ({x['best_peer']})",
        ]
        for x in results["slowed"]
    ]
    header = ["matrix", "ms", "of the device, ms", "times faster than the best"]
    return (
        f"{said}\n\nWith the host slowed (the process on one core, which another busy one shares), in float32:\n\n"
        + table(header, cells)
        + "\n\n"
    )


def variational() -> str:
    record = load("variational")
    summary, cases = record["results"]["summary"], record["results"]["cases"]
    groups = summary["mean_psnr_db"]
    names = sorted(groups["all"], key=groups["all"].__getitem__)
    means = table(
        ["mean PSNR, dB", *groups],
        [[name, *(f"{groups[g][name]:.1f}" if name in groups[g] else "–" for g in groups)] for name in names],
    )
    tuned = table(
        ["chosen by itself", "median loss, dB", "95th percentile", "worst", "worst gain over the input"],
        [
            [
                name,
                f"{s['median_loss_db']:.2f}",
                f"{s['loss_db_95th_percentile']:.2f}",
                f"{s['worst_loss_db']:.2f}",
                f"{s['worst_gain_over_input_db']:+.1f}",
            ]
            for name, s in summary.items()
            if name.endswith("automatic")
        ],
    )
    found = summary["detector"]
    text = (
        f"**Beyond the linear formula.** {len(cases)} photographs of 256 × 256 pixels by PSF, noise and boundary. "
        "*best λ*, and the parameter of every other package but `unsupervised_wiener`, were found with the truth at "
        "hand; *automatic* was given nothing, and finds impulses by `mask='auto'`.\n\n"
        + means
        + "\n\nWhat choosing λ by itself loses against the best λ:\n\n"
        + tuned
        + f"\n\nOf {found['impulses']} impulses in these pictures {found['missed']} were missed, with "
        f"{found['false_alarms']} false alarms.\n\n" + source("bench_variational.py", record)
    )
    recorded = {"experiments": _experiments, "posterior": _posterior}
    others = [write() for name, write in recorded.items() if (RESULTS / f"{name}.json").exists()]
    return "\n\n".join([text, *others, _speed(), _lucy(), _impulses(), _noise(), _table_mse()])


def _speed() -> str:
    record = load("variational_speed")
    rows = [
        [
            f"{r['side']} × {r['side']}",
            r["psf"],
            r["method"],
            r["dtype"],
            f"{r['seconds']:.2f}",
            str(r["iterations"]),
            f"{r['psnr_from_limit']:+.3f}",
        ]
        for r in record["results"]
    ]
    return (
        "**Seconds of total variation, boundary unknown.** To the tolerance by which it stops; the last column is how "
        "far the PSNR then is from that of a run to a much smaller one.\n\n"
        + table(["pixels", "PSF", "method", "dtype", "seconds", "iterations", "from the limit, dB"], rows)
        + "\n\n"
        + source("bench_variational_speed.py", record)
    )


def _impulses() -> str:
    record = load("impulses")
    counted = ("impulses", "missed", "visible", "visible missed", "false", "false without impulses", "pixels")
    sums: dict[tuple[str, str, str], dict[str, int]] = {}
    for r in record["results"]:
        if r["depth"] == "clipped":  # which differs little from 8 bits
            continue
        drawn = r["image"] in ("page", "text", "black and white areas")
        what = "print and flat areas" if drawn else "photographs"
        blurred = "hardly blurred" if r["psf"].startswith("hardly") else "blurred"
        total = sums.setdefault(
            (f"{what}, {blurred}", r["depth"], f"{r['noise']:g}"), dict.fromkeys(counted, 0)
        )
        for name in counted:
            total[name] += r[name]
    rows = [
        [
            *case,
            f"{100 * t['missed'] / t['impulses']:.1f} %",
            f"{100 * t['visible missed'] / t['visible']:.1f} %",
            str(t["false"]),
            str(t["false without impulses"]),
            f"{t['pixels'] / 1e6:.1f}",
        ]
        for case, t in sums.items()
    ]
    head = ["picture", "values", "noise", "missed", "missed of the visible", "false alarms"]
    head += ["the same without impulses", "million pixels"]
    text = (
        "**Impulses found by `mask='auto'`** at 2 % salt and pepper. An impulse is visible if it stands out of the "
        "noise."
    )
    least = [f"{100 * x:.1f} % at noise {noise}" for noise, x in record["settings"].get("hidden", {}).items()]
    if least:
        text += (
            " Who knows the blurred photographs before the noise, and takes one pixel in 10⁵ wrongly, has still to "
            f"miss, in 8 bits, {', '.join(least)}."
        )
    return text + "\n\n" + table(head, rows) + "\n\n" + source("bench_impulses.py", record)


def _lucy() -> str:
    from bench_richardson_lucy import table as measured

    record = load("richardson_lucy")
    rows = [
        [
            line["photographs"],
            line["noise"],
            str(line["cases"]),
            f"{line['dB below the best, median']:.2f}",
            f"{line['95 %']:.2f}",
            f"{line['gain dB']:+.1f}",
            str(line["below the input"]),
            f"{line['least gain dB']:+.1f}",
            str(line["not converged"]),
            f"{line['colour error, after over before']:.2f}",
        ]
        for line in measured(record["results"])
    ]
    head = [
        "photographs",
        "noise",
        "cases",
        "dB below the best iteration, median",
        "95 %",
        "gain, dB",
        "below the input",
    ]
    head += ["least gain", "not converged", "error of colours over the input's"]
    return (
        "**Where Richardson-Lucy stops**, with nothing given; the best iteration was found with the truth at hand.\n\n"
        + table(head, rows)
        + "\n\n"
        + source("bench_richardson_lucy.py", record)
    )


def _noise() -> str:
    from bench_noise import WITHIN, sharpened, signal_dependent
    from bench_noise import table as measured

    record = load("noise")
    results = record["results"]
    rows = [
        [
            line["photographs"],
            line["kept as"].replace("all, blurred", "all, but the PSF that hardly blurs"),
            line["way"],
            str(line["cases"]),
            f"{line['error, median %']:.1f} %",
            f"{line['error, 95 %']:.1f} %",
        ]
        for line in measured(results)
        if str(line["kept as"]).startswith("all") or line["way"] == "the PSF given"
    ]
    head = ["photographs", "kept as", "from", "cases", "error, median", "95 %"]
    share, grows = sharpened(results), signal_dependent(results, "set aside")
    return (
        "**The noise, estimated.** Levels from 0.001 to 0.08 of full scale, nine PSFs of which one hardly blurs; the "
        "truth is what was added where nothing is clipped, rounding included.\n\n"
        + table(head, rows)
        + "\n\n"
        f"Of sharpened pictures {share['right']:.0f} % are right within {100 * WITHIN:.0f} %, "
        f"{share['refused']:.0f} % are refused and {share['wrong']:.0f} % wrong. Of noise that grows with the light, "
        "the deviation at dark, middle and bright values of photographs set aside is wrong by "
        f"{grows['median %']:.1f} % in the median and {grows['95 %']:.1f} % at 95 % "
        f"({grows['cases']:.0f} pictures).\n\n" + source("bench_noise.py", record)
    )


def _experiments() -> str:
    """The six standard experiments, once they are recorded."""
    record = load("experiments")
    summary = record["results"]["summary"]
    rows = []
    for half in ("tuned on", "set aside"):
        for method, gains in summary[half].items():
            numbers = [f"{gains[str(n)]:.2f}" for n in range(1, 7)]
            rows.append([half, method, *numbers, f"{gains['mean']:.2f}", f"{gains['least']:.2f}"])
    text = (
        "**The six standard experiments.** Gains over the input in dB, on four photographs that the collaborative "
        "method was tuned on and four that were set aside; ours were given nothing but the PSF and the bounds 0 to "
        "1.\n\n" + table(["photographs", "method", *(str(n) for n in range(1, 7)), "mean", "least"], rows)
    )
    if "colours" in summary:
        found = summary["colours"]
        text += (
            f"\n\nColours together gain {found['mean_db']:.2f} dB on colours one by one in the mean of "
            f"{found['pictures']} photographs, and {found['least_db']:.2f} at least."
        )
    kept = record["settings"]["kept"]
    for commit in dict.fromkeys(kept.values()):
        rows_of = " and ".join(f"*{name}*" for name in kept if kept[name] == commit)
        text += f"\n\nThe rows {rows_of} are of commit {commit[:7]}."
    return text + "\n\n" + source("bench_experiments.py", record)


def _posterior() -> str:
    """How many errors lie within two deviations, once it is recorded."""
    record = load("posterior")
    rows = [
        [
            name,
            str(found["cases"]),
            f"{100 * found['covered']:.1f} %",
            f"{100 * found['median']:.1f} %",
            f"{100 * found['5 %']:.1f} to {100 * found['95 %']:.1f} %",
            f"{100 * found['cases_between_90_and_98']:.0f} %",
        ]
        for name, found in record["results"]["summary"].items()
    ]
    head = [
        "answer",
        "cases",
        "errors within two deviations",
        "median",
        "5 to 95 % of the cases",
        "between 90 and 98 %",
    ]
    return (
        "**Deviations of answers that are no linear ones.** The share of pixels whose true error is at most two of "
        "what `posterior_std` gives, on photographs that its factor was fitted to and on others.\n\n"
        + table(head, rows)
        + "\n\n"
        + source("bench_posterior.py", record)
    )


def _table_mse() -> str:
    record = load("table_mse")
    keys = ["degraded", "plain, best λ", "plain, chosen λ", "suited, chosen λ"]
    rows = [
        [
            r["row"],
            f"{r['published degraded']:g}",
            *(f"{r[key]:.2e}" for key in keys[:1]),
            f"{r['published recovered']:.3g}",
            *(f"{r[key]:.2e}" for key in keys[1:]),
            r["how"],
        ]
        for r in record["results"]
    ]
    head = ["row", "degraded, published", "degraded", "recovered, published", *keys[1:], "suited"]
    return (
        "**Table 6.3 of the thesis: mean squared errors.** `examples/table_mse.py` prints it with the footnotes that "
        "say what reproduces and what cannot.\n\n"
        + table(head, rows)
        + "\n\n"
        + source("bench_table_mse.py", record)
    )


_UPDATES = {
    ("delete", "col"): "columns removed",
    ("insert", "col"): "columns added",
    ("insert", "row"): "rows added",
    ("delete", "row"): "rows removed",
}


def _planned(cell: dict[str, Any]) -> float:
    """Time of what the plan chose over that of a new factorisation by our own `qr`."""
    own = next(v for name, v in cell["refactor_s"].items() if name in ("QRModel refactor", "deblur qr"))
    return cell["update_s"] / own if cell["planned"] == "update" else 1.0


def _update_rows(record: dict[str, Any], place: str) -> list[list[str]]:
    """For each kind of update: how much faster it is than the best full factorisation, best cell and range."""
    rows = []
    for (action, which), words in _UPDATES.items():
        for keep_q in (False, True):
            cells = [
                s
                for s in record["results"]["sweeps"]
                if (s["action"], s["which"], s["keep_q"]) == (action, which, keep_q)
            ]
            if not cells:
                continue
            gains = [min(s["refactor_s"].values()) / s["update_s"] for s in cells]
            best = cells[gains.index(max(gains))]
            rows.append(
                [
                    words,
                    place,
                    "Q and R" if keep_q else "R alone",
                    str(len(cells)),
                    f"{min(gains):.1f} to {max(gains):.1f}",
                    f"{best['m']} × {best['n']}, p = {best['p']}, k = {best['k']}",
                    f"{max(_planned(s) for s in cells):.2f}",
                ]
            )
    return rows


def updating() -> str:
    records = {"CPU": ("bench_qr_update.py", load("qr_update_cpu"))}
    if (ROOT / "benchmarks" / "results" / "qr_update_gpu.json").exists():
        records["GPU"] = ("bench_gpu_qr_update.py", load("qr_update_gpu"))
    rows = [row for place, (_, record) in records.items() for row in _update_rows(record, place)]
    ratios: dict[str, dict[str, float]] = {}
    for _, record in records.values():
        for a in record["results"]["accuracy"]:
            case = a["what"] if "random" in a["what"] else "one update"
            for what, ratio in a["ratio"].items():
                ratios.setdefault(case, {})[what] = max(ratio, ratios.get(case, {}).get(what, 0.0))
    accuracy = table(
        ["error over that of a full factorisation, the largest", *ratios["one update"]],
        [[case, *(f"{ratio:.1f}" for ratio in errors.values())] for case, errors in ratios.items()],
    )
    head = ["update", "on", "kept", "cells", "times faster", "best cell", "plan / new"]
    return (
        "**QR updating.** The least-squares solution after rows or columns have come or gone, by an update, against "
        "the fastest full factorisation of any library in the same run, over the sweeps of Andrew & Dingle (2014). "
        "*Plan / new* is the time of what `plan_update` chose over that of our own new factorisation, in the worst "
        "cell.\n\n"
        + table(head, rows)
        + "\n\nA `QRModel` left to itself (`method='auto'`) factors anew before errors add up:\n\n"
        + accuracy
        + "\n\n"
        + "\n\n".join(source(script, record) for script, record in records.values())
    )


def summary() -> str:
    """The few lines of the README; the tables are in docs/figures.md."""
    core_results, structured_results = load("core")["results"], load("structured")["results"]
    rules, edges = load("lambda_choice")["results"]["summary"]["all"], load("boundary")["results"]
    inverse, qr = load("gpu_inverse")["results"]["sizes"], load("gpu_qr")["results"]
    products = load("gpu_matmul")["results"]["products"]
    worst = max(
        row[key] or 0.0
        for row in core_results["agreement"]
        if row["dtype"] == "float64"
        for key in row
        if key.startswith("lambda")
    )
    told = load("auto_boundary")["results"]
    right = {s["boundary"]: s for s in told["boundaries"]["summary"]}
    pcg = [t["cold_ratio"] for t in structured_results["times"] if t["method"] == "pcg"]
    by_method = {s["method"]: s for s in edges["summary"]}
    ours, peer = by_method["unknown, gcv"], by_method["padded wiener, best"]

    def faster(names: tuple[str, ...]) -> str:
        ratios = [
            size["times"][v["peer"]]["median_s"] / size["times"][name]["median_s"]
            for size in inverse
            for name, v in size["verdicts"].items()
            if name in names
        ]
        return f"{min(ratios):.1f} to {max(ratios):.1f}"

    split = [
        p["times_cublas"]
        for p in products
        if p["product"] == "general" and p["dtype"] == "float32" and p["engine"] == "split"
    ]
    beyond = load("variational")["results"]
    means = beyond["summary"]["mean_psnr_db"]["all"]
    fair = beyond["summary"]["mean_psnr_db"]["all but salt & pepper"]
    lone = [c["speedup_over_best"] for c in qr["sweep"]]
    many = [c["speedup_over_best"] for c in qr["grid"] if c["batch"] >= 100]
    lines = [
        f"In float64 every method agrees with a dense solve to a relative difference of {worst:.0e} or better "
        f"({core_results['size']} × {core_results['size']} pixels, λ from 1e-2 to 1e-6), or says that it failed.",
        f"An exact solve of 1024 × 1024 pixels for any PSF takes {min(pcg):.0f} to {max(pcg):.0f} times one call of "
        "scikit-image's `wiener`, which assumes a periodic scene.",
        f"λ by `gcv` loses {rules['gcv']['median_loss_db']:.2f} dB in the median against the best λ, and "
        f"{rules['gcv']['loss_db_95th_percentile']:.1f} dB at the 95th percentile.",
        f'On {len(edges["cases"])} photographs whose scene goes on beyond the frame, `boundary="unknown"` with λ by '
        f"`gcv` reaches {ours['mean_psnr_db']:.1f} dB in the mean; smoothly padded `wiener` at its best parameter "
        f"{peer['mean_psnr_db']:.1f} dB. It was below the blurred input in {ours['cases_below_input']} of them.",
        "The boundary is read off the picture: of photographs blurred by a program that takes the scene to be "
        f"black beyond the frame {right['zero']['found']} of {right['zero']['cases']} were told, to repeat "
        f"{right['periodic']['found']} of {right['periodic']['cases']}; of those whose scene goes on "
        f"{right['unknown']['cases'] - right['unknown']['found']} of {right['unknown']['cases']} were taken for "
        "either.",
        f"On {len(beyond['cases'])} pictures (PSFs, noises and boundaries mixed) with no number given, "
        f"`collaborative` reaches {means['collaborative, automatic']:.1f} dB in the mean and `tv` "
        f"{means['tv, automatic']:.1f}; SCICO's total variation at its best parameter {means['scico admm-tv']:.1f} "
        f"(without salt and pepper, for which it has no mask: {fair['collaborative, automatic']:.1f}, "
        f"{fair['tv, automatic']:.1f} and {fair['scico admm-tv']:.1f}).",
        f"On an H200, against the libraries in the same run: symmetric inverses {faster(('cholesky_inverse',))} times "
        f"faster, pivoted inverses {faster(('gauss_jordan_inverse',))}, float32 products {min(split):.1f} to "
        f"{max(split):.1f}, QR of one matrix ({len(lone)} shapes) {min(lone):.1f} to {max(lone):.1f}, "
        "of batches of a hundred and more "
        f"{min(many):.0f} to {max(many):.0f}.",
    ]
    return _compared() + "\n\n" + "\n".join(f"- {line}" for line in lines)


def _compared() -> str:
    """A few methods on one picture, as `deblur compare` found them."""
    record = load("compare")
    shown = ("auto", "tv", "tv2", "collaborative", "pnp", "richardson-lucy")
    found = [
        r
        for r in record["results"]["rows"]
        if r["psnr"] is not None and (r["method"] in ("blurred", *shown) or r["method"].startswith("skimage"))
    ]
    rows = [
        [
            f"`{r['method']}`" if r["method"] != "blurred" else "blurred",
            f"{r['psnr']:.1f}",
            f"{r['ssim']:.2f}",
            f"{sum(r[k] or 0.0 for k in ('choose_s', 'setup_s', 'solve_s')):.2f}" if r["solve_s"] else "",
        ]
        for r in sorted(found, key=lambda r: -r["psnr"])
    ]
    return (
        "`deblur compare`: one picture, no method knew the sharp one "
        f"({record['settings']['case']}; seconds include choosing λ; scikit-image's as its users call it, and "
        "padded).\n\n"
        + table(["method", "PSNR, dB", "SSIM", "seconds"], rows)
        + "\n\n"
        + source("bench_compare.py", record)
    )


def _percent(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")


def _cut(name: str, part: dict[str, Any]) -> list[str]:
    if not part["cases"]:
        return [name, "0", *["–"] * 5]
    return [
        name,
        str(part["cases"]),
        _percent(part["held_percent"]),
        f"{part['worst_over_tolerance']:.2g}",
        *(
            "–" if part[name] is None else f"{part[name]:.2f}"
            for name in ("overlap_over_smallest_median", "overlap_over_smallest_90")
        ),
        f"{part['overlap_in_psf_sizes_median']:.1f} … {part['overlap_in_psf_sizes_largest']:.0f}",
    ]


def tiles() -> str:
    record = load("tiles_prediction")
    found = record["results"]
    header = [
        "cases",
        "n",
        "seam below the tolerance, %",
        "worst seam / tolerance",
        "overlap / smallest that would do, median",
        "90 %",
        "overlap in PSF sizes, median … largest",
    ]
    rows = [_cut("all", found["all"])] if "all" in found else []
    rows += [
        _cut("PSFs and pictures set aside", found["aside"]),
        _cut("those it was fitted on", found["fitted"]),
    ]
    rows += [_cut(name, part) for name, part in found["by_boundary"].items() if part["cases"]]
    rows += [_cut(f"tile {name}", part) for name, part in found["by_tile"].items() if part["cases"]]
    rows += [_cut(name, part) for name, part in found["by_dtype"].items() if part["cases"]]
    rows += [_cut(f"λ = {name}", part) for name, part in found.get("by_lam", {}).items() if part["cases"]]
    drawn = found.get("drawn", len(found["cases"]) + found["not_cut"])
    said = (
        f"Of {drawn} cases that were drawn {found['not_cut']} cannot be cut into tiles of up to 1024 pixels, as the "
        f"plan says; {len(found['cases'])} were measured"
        + (f", and {len(found['abandoned'])} were not in the time there was." if found["abandoned"] else ".")
    )
    if passes := found.get("refined"):
        said += (
            f" Of {passes['cases']} more, whose overlap is larger than their tile and which are refined in "
            f"{passes['passes'][0]} to {passes['passes'][-1]} passes, {passes['held_percent']:.0f} % are below the "
            f"tolerance at the end, the worst at {passes['worst_over_tolerance']:.2f} of it; "
            f"{passes['more_than_foretold']} took more passes than the plan had foretold, and {passes['refused']} were "
            "refused before they began."
        )
    if took := found.get("plan_seconds"):
        said += (
            f" `deblur plan` of a picture of 100 000² pixels takes {took['clock']:.2f} s from start to end, "
            f"{took['cpu']:.2f} s of CPU."
        )
    parts = [said + "\n\n" + table(header, rows) + "\n\n" + source("bench_tiles.py", record)]
    parts += [_stores(name) for name in ("tiles_stores", "tiles_stores_32768") if _measured(name)]
    if _measured("tiles_gpu"):
        parts.append(_tiles_gpu())
    return "\n\n".join(parts)


def _measured(name: str) -> bool:
    return (ROOT / "benchmarks" / "results" / f"{name}.json").exists()


def _stores(name: str) -> str:
    record = load(name)
    found, settings = record["results"], record["settings"]
    peers = {
        "copy": "copied through Dask",
        "deblur": "`deblur.tiles.stream`",
        "wiener": "scikit-image `wiener`",
    }
    peers["richardson_lucy"] = (
        f"scikit-image `richardson_lucy`, {settings['richardson_lucy_iterations']} iterations"
    )
    rows = [
        [peers[who], f"{s['median_s']:.1f}", f"{found['peak_bytes_of_a_worker'][who] / 1e6:.0f}"]
        for who, s in found["seconds"].items()
    ]
    said = (
        f"{settings['side']}² float32 in zarr ({found['bytes_of_the_picture'] / 1e9:.2g} GB), "
        f"{settings['cores']} processes of one thread, {settings['psf']}, λ = {settings['lam']:g}, boundary "
        f"{settings['boundary']}, overlap {found['overlap']} pixels."
    )
    if len(rows) > 2:
        said += " The peers under `map_overlap` with the same."
    if found["over_copy_and_solves"] is not None:
        one, both = (found[f"tile_solves_{how}"]["median_s"] for how in ("one_thread", "at_once"))
        said += (
            f" All windows solved alone take {both:.1f} s by {settings['cores']} processes at once; the whole takes "
            f"{found['over_copy_and_solves']:.2f} times the copy and that. In one process they take {one:.1f} s: cores "
            "that work side by side are slower."
        )
    if found.get("over_copy_and_solves_cpu") is not None:
        said += (
            f" By CPU seconds of all processes, which other work on the machine changes less, it is "
            f"{found['over_copy_and_solves_cpu']:.2f} times."
        )
    if found.get("whole_cpu_seconds") is not None:
        tiles = found["cpu_seconds"]["deblur"]["median_s"]
        said += (
            f" To solve the picture whole, in memory, takes {found['whole_cpu_seconds']:.1f} CPU seconds; in tiles, "
            f"from store to store, {tiles:.1f}: only a strip along the frame is solved, the rest is filtered."
        )
    if found["seam_measured"] is not None:
        said += (
            f" Seam predicted {found['seam_predicted']:.1e} of the range, measured {found['seam_measured']:.1e} "
            f"({found['seam_measured_on']})."
        )
    return (
        f"{said}\n\n"
        + table(["from store to store", "seconds", "peak of a worker, MB"], rows)
        + "\n\n"
        + source("bench_tiles_stores.py", record)
    )


def _tiles_gpu() -> str:
    record = load("tiles_gpu")
    settings = record["settings"]
    names = {"picture": f"{settings['side']}² in tiles", "stack": f"{settings['frames']} × 1024²"}
    rows = [
        [
            names[work],
            f"{r['seconds']['1']['median_s']:.1f}",
            f"{r['seconds']['2']['median_s']:.1f}",
            f"{r['speedup_two']:.2f}",
            f"{r['bytes_up'] / 1e9:.1f} / {r['bytes_down'] / 1e9:.1f}",
            f"{r['transfer_s_in_all']:.1f}",
            f"{r['modelled_speedup']['4']:.1f} / {r['modelled_speedup']['8']:.1f}",
        ]
        for work, r in record["results"].items()
    ]
    header = [
        "work",
        "one GPU, s",
        "two, s",
        "times",
        "GB up / down the bus",
        "s in transfers, of all",
        "times with 4 / 8, by a model",
    ]
    return (
        "Two GPUs of one host, a process each. What four and eight would give is no measurement: t = a + b/n through "
        "the two.\n\n" + table(header, rows) + "\n\n" + source("bench_tiles_gpu.py", record)
    )


#: Which file each section stands in.
def light() -> str:
    record = load("light")
    found = {(s["lamps"], s["stored"], s["way"]): s for s in record["results"]["summary"]}
    kinds = list(dict.fromkeys(key[:2] for key in found))
    rows = []
    for way in dict.fromkeys(key[2] for key in found):
        cells = (found.get((*kind, way)) for kind in kinds)
        rows.append([way, *("–" if c is None else f"{c['psnr']:.1f} / {c['near']:.1f}" for c in cells)])
    wide = [key for key in found if key[2] == "tv, light, hidden as far as the PSF"]
    kept = [(*key[:2], "tv, light, hidden") for key in wide]
    left = [sum(found[key]["left"] for key in keys) / len(keys) for keys in (kept, wide)]
    return (
        "Night scenes with lamps, as a camera stores them: PSNR in dB, of the whole picture / of what is near lamps. "
        "*Numbers*: the file's numbers restored; *light*: `--gamma srgb`; *hidden*: `--mask saturated`; "
        "*not negative*: `--bounds nonnegative`.\n\n"
        + table(["", *(f"lamps {lamps}, {stored}" for lamps, stored in kinds)], rows)
        + f"\n\nOf the brightness that clipped lamps have in the sharp picture, {100 * left[0]:.0f} % is restored "
        f"where what is hidden is grown by one pixel, and {100 * left[1]:.0f} % where it is grown by the PSF: there is "
        "less ringing then, but little is left that tells of them.\n\n" + source("bench_light.py", record)
    )


def gallery() -> str:
    """The six pictures, and a table of what every method reached in them with which parameter."""
    record = load("gallery")
    cases = record["results"]["cases"]
    parts = []
    for number, row in enumerate(cases, start=1):
        answers = {name: figures["psnr"] for name, figures in row["answers"].items()}
        theirs = {name: psnr for name, psnr in answers.items() if not name.startswith(("deblur", "blurred"))}
        best = max(theirs, key=theirs.__getitem__)
        gain = answers["deblur, collaborative"] - theirs[best]
        where = f"{abs(gain):.1f} dB {'above' if gain > 0 else 'below'} the best of the others, {best}"
        parts.append(
            f"**{number}. {_said(row['case'])}.** `collaborative` is {where}.\n\n"
            f"![{row['case']}: sharp, blurred, and restored by {len(answers) - 1} methods]({row['file']})"
        )

    def cell(figures: dict[str, Any]) -> str:
        parameter = figures["parameter"]
        words = str(parameter) if isinstance(parameter, int) else f"{parameter or 0:.2g}"
        return f"{figures['psnr']:.1f}" + ("" if parameter is None else f" ({words})")

    names = list(cases[0]["answers"])
    rows = [[f"`{name}`", *(cell(row["answers"][name]) for row in cases)] for name in names]
    photographs = sorted({row["photograph"] for row in cases})
    return (
        "\n\n".join(parts)
        + "\n\nPSNR of the whole picture in dB, and in brackets the parameter: the balance of `wiener`, the steps of "
        "`richardson_lucy` and `cgls`, the λ of SCICO's total variation, the noise's level that `bm3d` was told.\n\n"
        + table(["", *(str(number) for number, _ in enumerate(cases, start=1))], rows)
        + f"\n\nThe photographs: {'; '.join(photographs)}. The six were chosen by the figures of commit "
        f"{record['results']['chosen_from'][:7]}.\n\n" + source("bench_gallery.py", record)
    )


def _said(case: str) -> str:
    photograph, *psf, noise, beyond = case.split(", ")
    noise = "no noise" if noise == "none" else noise
    beyond = "black beyond the frame" if beyond == "zero" else "a scene that goes on"
    return f"{photograph.capitalize()}, {', '.join(psf)}, {noise}, {beyond}"


def _of_other_commits(record: dict[str, Any]) -> str:
    """Which cells are of the record's commit, and of which the others are."""
    kept = record["settings"].get("kept", {})
    if not kept:
        return ""
    now = "; ".join(row["cell"] for row in record["results"] if row["cell"] not in kept)
    commits = list(kept.values())
    others = ", ".join(f"{commits.count(c)} of commit {c[:7]}" for c in dict.fromkeys(commits))
    return f" *Of that commit: {now}. The other cells: {others}.*"


def photographs() -> str:
    record = load("photographs")
    cells = {(r["picture"], r["contestant"], *sorted(r["options"].items())): r for r in record["results"]}
    pictures = list(dict.fromkeys(r["picture"] for r in record["results"]))
    commands = [
        [
            f"{r['picture']}" + "".join(f", {key}={value}" for key, value in r["options"].items()),
            f"{r['seconds']:.2g}",
            f"{r['predicted']:.2g} / {r['call_seconds']:.2g}",
            f"{r['peak_bytes'] / 1e6:.0f}",
            f"{r['peak_bytes'] / r['values']:.0f}" if r["values"] >= 1e6 else "–",
            f"{r['psnr_input']:.2f} → {r['psnr']:.2f}",
        ]
        for r in record["results"]
        if r["contestant"] == "command" and "failed" not in r
    ]
    peers = [
        [
            r["picture"],
            r["contestant"],
            f"{r['seconds']:.2g}",
            f"{r['peak_bytes'] / 1e6:.0f}",
            f"{r['psnr_input']:.2f} → {r['psnr']:.2f}",
        ]
        for r in record["results"]
        if r["contestant"].startswith("skimage") and "failed" not in r
    ]
    words = ("64²", "256²", "512²", "1 MP", "12 MP")
    sizes = [name for name in words if name in pictures]
    kinds = dict.fromkeys(key[2:] for key in cells if key[1] == "call" and key[0] in sizes)
    foretold, calls = [], []
    for kind in kinds:
        said = dict(kind)
        line = [f"{said.get('method', 'auto')}, λ {said.get('lam', 'chosen')}"]
        for size in sizes:
            r = cells.get((size, "call", *kind))
            if r is None or "failed" in r:
                line.append("–")
                continue
            line.append(
                f"{r['seconds']:.2g} ({r['foretold'] / r['seconds']:.2g}; {r['predicted'] / r['seconds']:.2g})"
            )
            foretold += [r["foretold"] / r["seconds"], r["predicted"] / r["seconds"]]
        calls.append(line)
    within = sum(0.5 <= ratio <= 2 for ratio in foretold)
    return (
        "**Real pictures on two cores.** `deblur reconstruct IN -o OUT --psf ...`, nothing else said, each in a "
        "process of its own: seconds from start to end, what the call inside was predicted to take and took, the peak "
        "of the process's memory in MB and in bytes a pixel and channel, and PSNR in dB.\n\n"
        + table(["picture", "seconds", "call: predicted / took", "MB", "bytes", "PSNR"], commands)
        + "\n\nscikit-image on the same files, as an array: `wiener` with its parameter 0.1, `richardson_lucy` "
        "with 30 iterations; they take the scene to be dark or repeated beyond the frame.\n\n"
        + table(["picture", "function", "seconds", "MB", "PSNR"], peers)
        + "\n\n**What is foretold.** Seconds of a first call in a fresh process, on grey pictures; in brackets what "
        "the progress line said as the work began, and what the result says was predicted once λ was known, over what "
        f"it took: {within} of {len(foretold)} are within a factor of two.\n\n"
        + table(["", *sizes], calls)
        + "\n\n"
        + source("bench_photographs.py", record)
        + _of_other_commits(record)
        + (_tuning() if _measured("tuning") else "")
    )


def _tuning() -> str:
    """What choosing λ of tv and its kin costs and loses."""
    record = load("tuning")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in record["results"]:
        groups.setdefault((r["size"], r["method"], r["colours"], r["hidden"]), []).append(r)
    rows = []
    for (size, method, colours, hidden), cells in groups.items():
        lost = sorted(r["psnr as it was"] - r["psnr"] for r in cells)
        solves = [
            sorted(r[key] / r["seconds, λ given"] for r in cells)[len(cells) // 2]
            for key in ("seconds", "seconds, as it was")
        ]
        rows.append(
            [
                f"{size}²" + (", colour" if colours > 1 else "") + (", mask" if hidden else ""),
                method,
                str(len(cells)),
                f"{solves[0]:.1f}",
                f"{solves[1]:.1f}",
                f"{lost[len(lost) // 2]:.3f}",
                f"{lost[-1]:.2f}",
            ]
        )
    return (
        "\n\n**λ of tv from windows and loose solutions.** The whole call in solves with λ given, and as it was with λ "
        "from solutions of the whole picture to a tight tolerance; and the PSNR that the λ loses against that one, in "
        "dB. Half of the photographs are set aside.\n\n"
        + table(["picture", "method", "cases", "solves", "as it was", "lost, median", "most"], rows)
        + "\n\n"
        + source("bench_tuning.py", record)
    )


SECTIONS: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "docs" / "methods.md": {"summary": summary},
    ROOT / "docs" / "photographs.md": {"light": light},
    ROOT / "docs" / "gallery.md": {"gallery": gallery},
    ROOT / "docs" / "figures.md": {
        "core": core,
        "linalg": linalg,
        "structured": structured,
        "house": house,
        "lambda": lam,
        "boundary": boundary,
        "auto_boundary": auto_boundary,
        "variational": variational,
        "updating": updating,
        "psf": psf,
        "varying": varying,
        "blind": blind,
        "gpu": gpu,
        "everyday": everyday,
        "tiles": tiles,
        "photographs": photographs,
    },
}


def filled(path: Path) -> str:
    """The text of `path` with every section between its markers."""
    text = path.read_text()
    for name, write in SECTIONS[path].items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{path.name} must have the markers of section {name!r} once")
        body = write()
        text = pattern.sub(lambda match, body=body: f"{match[1]}{body}\n{match[2]}", text)
    return text


if __name__ == "__main__":
    for path in SECTIONS:
        text = filled(path)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif text != path.read_text():
            raise SystemExit(
                f"{path.name} is not what the results say; run python benchmarks/update_readme.py"
            )
