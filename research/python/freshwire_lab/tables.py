"""The tables and sentences of the documents, computed from the runs of `research/published`."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Json: TypeAlias = dict[str, Any]
Runs: TypeAlias = "list[Json]"


class TableError(Exception):
    """The results lack what a table shows."""


def only(values: Iterable[Json], what: str) -> Json:
    """Give the one run that is there."""
    found = list(values)
    if len(found) != 1:
        message = f"{what}: {len(found)} runs where one is wanted"
        raise TableError(message)
    return found[0]


def some(values: Iterable[float], what: str) -> list[float]:
    """Give the values, of which there has to be one."""
    found = list(values)
    if not found:
        message = f"no run of {what}"
        raise TableError(message)
    return found


def row(*cells: object) -> str:
    """Make a row of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells: str) -> list[str]:
    """Make the head of a Markdown table."""
    return [row(*cells), "|" + "---|" * len(cells)]


def origin(runs: Runs, *, marked: bool = False) -> list[str]:
    """Say when, where and how the runs were made, and how many count; `marked` ones are in the table."""
    data = [run.get("data", run) for run in runs]
    environments = [one["environment"] for one in data if "environment" in one]
    lines: list[str] = []
    if environments:
        machines = sorted({f"{e['cpu']}, {e['cores']} cores, Linux {e['kernel'].split('-')[0]}" for e in environments})
        commits = sorted({e["commit"] for e in environments})
        dates = sorted({run["date"] for run in runs})
        lines = [f"{', '.join(dates)}; {'; '.join(machines)}; commit {', '.join(commits)}.", "", "```sh"]
        lines += sorted({todays(e["command"]) for e in environments}) + ["```"]
    set_aside = sum(not is_trusted(run) for run in runs)
    if set_aside and not marked:
        lines += ["", f"Set aside, as the machine was too busy: {set_aside} of {len(runs)} runs."]
    return [*lines, ""]


def todays(command: str) -> str:
    """Spell a command of a result file as it is today: the laboratory was a part of `freshwire` until 2026-11-27."""
    spelled = re.sub(r"^freshwire lab\b", "freshwire-lab", command)
    return re.sub(r"^freshwire (bench|demo|sim)\b", r"freshwire-lab \1", spelled)


def is_trusted(run: Json) -> bool:
    """Say whether the machine kept to the link's model."""
    return run.get("data", run).get("trust", {}).get("trustworthy", True)


def trusted(runs: Runs) -> list[Json]:
    """Give the data of the runs that count."""
    return [run["data"] for run in runs if is_trusted(run)]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Print the median, and the smallest and largest behind it where they differ."""
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}-{high})"


# The demo.

NAMES_OF_DEMO = {"plain_tcp": "plain TCP", "freshwire": "Freshwire on TCP", "a1": "Freshwire on A1"}


def demo(runs: Runs) -> list[str]:
    """Tell how old the picture on the screen was."""
    lines = origin(runs)
    lines += head(
        "seed",
        "scheme",
        "age, median",
        "95th percentile",
        "worst",
        "shown on time of 1000",
        "SSIM, mean",
        "torn",
        "decoder errors",
    )
    for run in sorted(runs, key=lambda run: run["link"]["seed"]):
        for viewer in run["viewers"]:
            metrics, quality, outcome = viewer["metrics"], viewer["quality"], viewer["outcome"]
            ages = (f"{metrics[name]:.2f} s" for name in ("age_p50_s", "age_p95_s", "age_max_s"))
            lines.append(
                row(
                    run["link"]["seed"],
                    NAMES_OF_DEMO[outcome["scheme"]],
                    *ages,
                    metrics["on_time"],
                    f"{quality['ssim_mean']:.2f}",
                    outcome["torn"],
                    quality["decoder_errors"],
                )
            )
    return lines


def demo_sentence(runs: Runs) -> str:
    """Say in the README what the demo showed."""
    run = only((run for run in runs if run["link"]["seed"] == 4), "demo with seed 4")
    viewers = {viewer["outcome"]["scheme"]: viewer["metrics"] for viewer in run["viewers"]}
    tcp, ours = viewers["plain_tcp"], viewers["freshwire"]
    return (
        f"after 40 s the picture on the screen is **{tcp['age_max_s']:.0f} s old** with plain TCP. "
        f"With Freshwire its median age is **{ours['age_p50_s']:.1f} s**, "
        f"and the 95th percentile {ours['age_p95_s']:.1f} s (`freshwire-lab demo --seed 4`)."
    )


# State.

SCHEMES_OF_STATE = {
    "tcp": "plain TCP",
    "mailbox-lowat": "mailbox, low water",
    "freshwire": "Freshwire, by key",
    "freshwire-gate": "Freshwire, gate of 8",
    "a1": "A1, by key",
}


def state(runs: Runs) -> list[str]:
    """Tell how old the newest value of an object was."""
    lines = origin(runs)
    lines += head(
        "path",
        "reader",
        "scheme",
        "age, mean",
        "95th percentile",
        "longest silence, fair rounds",
        "rarest object, of the mean",
        "runs",
    )
    cells: dict[tuple[str, str, str], list[Json]] = {}
    for data in trusted(runs):
        if data["plan"]["scheme"] not in SCHEMES_OF_STATE:
            continue
        link = data["plan"]["link"]
        path = "loopback" if link is None else f"{link['rate_bps'] // 1000} kbit/s"
        cells.setdefault((path, data["plan"]["reader"]["kind"], data["plan"]["scheme"]), []).append(data["metrics"])
    order = list(SCHEMES_OF_STATE)
    for path, reader, scheme in sorted(cells, key=lambda cell: (cell[0], cell[1], order.index(cell[2]))):
        metrics = cells[path, reader, scheme]
        ages = (f"{median(one[name] / 1e6 for one in metrics):.0f} ms" for name in ("age_mean_ns", "age_p95_ns"))
        silence = median(one["worst_silence_ns"] / one["fair_round_ns"] for one in metrics)
        least = median(one["least_share"] for one in metrics)
        shares = (f"{silence:.1f}", f"{100 * least:.0f} %", len(metrics))
        lines.append(row(path, reader, SCHEMES_OF_STATE[scheme], *ages, *shares))
    return lines


# The screen.

SENDERS_OF_SCREEN = {"freshwire": "no setting", "2000ms": "`latency=2s`", "650ms": "`latency=650ms`"}


def screen(runs: Runs) -> list[str]:
    """Tell what was on the screen across links below the stream's rate."""
    lines = origin(runs, marked=True)
    columns = ("age, mean", "95th percentile", "pictures/s", "frozen", "oracle: age, pictures/s", "torn")
    lines += head("stream", "link", "sender", *columns)
    datas = [run["data"] for run in runs]
    order = list(SENDERS_OF_SCREEN)

    def place(data: Json) -> tuple[str, int, int]:
        plan = data["plan"]
        return (plan["stream"]["name"], -plan["link"]["rate_bps"], order.index(plan["scheme"]))

    for data in sorted(datas, key=place):
        plan, metrics = data["plan"], data["metrics"]
        ours, oracle = metrics["screen"], metrics["oracle"]
        mark = "" if data["trust"]["trustworthy"] else " (busy machine)"
        lines.append(
            row(
                plan["stream"]["name"],
                f"{plan['link']['rate_bps'] // 1000} kbit/s",
                SENDERS_OF_SCREEN[plan["scheme"]] + mark,
                f"{ours['age_mean_s']:.2f} s",
                f"{ours['age_p95_s']:.2f} s",
                f"{ours['pictures_per_s']:.1f}",
                f"{ours['frozen_s']:.1f} s",
                f"{oracle['age_mean_s']:.2f} s, {oracle['pictures_per_s']:.1f}",
                data["decoded"]["torn"],
            )
        )
    return lines


# Layers.

LAYERS = {
    "tcp": "plain TCP",
    "freshwire": "Freshwire on TCP",
    "srt": "SRT",
    "sctp": "SCTP, lifetimes",
    "quic": "QUIC, priorities and resets",
    "a1": "A1",
}


def link_of(plan: Json) -> str:
    """Name a link."""
    link = plan["link"]
    rate = "no limit" if link["rate_bps"] is None else f"{link['rate_bps'] // 1024} Kibit/s"
    return f"{rate}, {100 * link['loss']:g} %, {link['delay_ms']:g} ms"


def order_of(plan: Json) -> tuple[float, float, float]:
    """Sort links: fast ones, lossless ones, near ones first."""
    link = plan["link"]
    return (-(link["rate_bps"] or 1e12), link["loss"], link["delay_ms"])


def a1(runs: Runs) -> list[str]:
    """Tell the share of the ideal that was on time, by transport."""
    lines = origin(runs)
    lines += head("link", *LAYERS.values())
    datas = trusted(runs)
    for link in dict.fromkeys(link_of(data["plan"]) for data in sorted(datas, key=lambda data: order_of(data["plan"]))):
        cells: list[str] = []
        for scheme in LAYERS:
            values = [
                100 * data["metrics"]["share_of_ideal"]
                for data in datas
                if data["plan"]["scheme"] == scheme and link_of(data["plan"]) == link
            ]
            cells.append(spread(values) if values else "no run counts")
        lines.append(row(link, *cells))
    return lines


PUBLISHED = {(1048576, 0.05): "1.22 % less", (524288, 0.05): "0.31 % less", (262144, 0.05): "0.27 % less"}
"""Rate and loss of the limited configurations of Birkedal 2006, and the difference that it found."""


def thesis(runs: Runs) -> list[str]:
    """Compare the rule of Birkedal 2006 with plain TCP on its four configurations."""
    lines = origin(runs)
    columns = ("plain TCP, Kibit/s", "thesis's rule, Kibit/s", "difference", "in the thesis")
    lines += head("link", *columns, "windows with a complete base layer", "runs")
    datas = trusted(runs)
    for link in dict.fromkeys(link_of(data["plan"]) for data in sorted(datas, key=lambda data: order_of(data["plan"]))):
        of_link = [data for data in datas if link_of(data["plan"]) == link]
        metrics: dict[str, list[Json]] = {"tcp": [], "thesis": []}
        for data in of_link:
            metrics.setdefault(data["plan"]["scheme"], []).append(data["metrics"])
        rates = {
            scheme: some((one["receive_rate_kibit"] for one in metrics[scheme]), f"{scheme}, {link}")
            for scheme in ("tcp", "thesis")
        }
        tcp, rule = median(rates["tcp"]), median(rates["thesis"])
        change = 100 * (rule / tcp - 1)
        bases = [one["received_layer_bytes"][0] // 16384 for one in metrics["thesis"]]
        plan = of_link[0]["plan"]["link"]
        lines.append(
            row(
                link,
                f"{tcp:.1f}",
                f"{rule:.1f}",
                f"{abs(change):.1f} % {'more' if change > 0 else 'less'}",
                PUBLISHED.get((plan["rate_bps"], plan["loss"]), ""),
                f"{spread(bases)} of 60",
                f"{len(rates['tcp'])} and {len(rates['thesis'])}",
            )
        )
    return lines


# Frames.

FRAMES = {
    "tcp": "plain TCP",
    "reserve": "small reserve alone",
    "encoder": "encoder's queue rule",
    "freshwire": "Freshwire",
}


def frames(runs: Runs) -> list[str]:
    """Tell how many frames were whole, on time and decodable."""
    lines = origin(runs)
    lines += head("link", "scheme", "frames on time", "oracle", "share", "recovery after the dip", "runs")
    datas = trusted(runs)
    for steps in sorted({len(data["plan"]["link"]["steps"]) for data in datas}):
        for scheme, name in FRAMES.items():
            of_cell = [
                data["metrics"]
                for data in datas
                if data["plan"]["scheme"] == scheme and len(data["plan"]["link"]["steps"]) == steps
            ]
            if not of_cell:
                message = f"frames: no run of {scheme} counts"
                raise TableError(message)
            on_time = [one["on_time_frames"] for one in of_cell]
            oracle = [one["oracle_frames"] for one in of_cell]
            share = [100 * one["on_time_frames"] / one["oracle_frames"] for one in of_cell]
            back = [one["recovery"].get("after_ns") for one in of_cell]
            recovery = "" if not steps else ("never" if None in back else f"{median(back) / 1e6:.0f} ms")
            link = "dip from 6 to 1 Mbit/s" if steps else "2 Mbit/s"
            lines.append(row(link, name, spread(on_time), spread(oracle), f"{spread(share)} %", recovery, len(of_cell)))
    return lines


# Virtual time.


def sim(runs: Runs) -> list[str]:
    """Tell what each scenario reached in virtual time."""
    commits = sorted({run["commit"] for run in runs})
    lines = [f"Virtual time, seed 1: the same on every machine. Commit {', '.join(commits)}.", ""]
    lines += ["```sh", "freshwire-lab sim --json", "```", ""]
    lines += head("scenario", "on time (base layer)", "delay p50, p95, max", "missed goals")
    for data in (run["data"] for run in runs):
        shares: list[str] = []
        delays: list[str] = []
        for flow in data["flows"]:
            shares.append(f"{flow['name']} {100 * flow['on_time']:.0f} % ({100 * flow['base']:.0f} %)")
            delays.append(", ".join(f"{flow['delays_ms'][name]:.0f}" for name in ("p50", "p95", "max")))
        lines.append(row(f"`{data['scenario']}`", ", ".join(shares), "; ".join(delays) + " ms", len(data["misses"])))
    return lines


# Receiving UDP.

RECEIVE_UNITS = {"percent": (1.0, 3, " %"), "nanoseconds": (1.0, 0, " ns"), "count": (1.0, 0, "")}
AGE_MS = (1e-6, 1, " ms")


def receive(runs: Runs) -> list[str]:
    """Compare ways to receive UDP while a program stalls, and what a slow program reads."""
    machine = only((run["data"] for run in runs if run["type"] == "machine"), "the machine")
    kernel = machine["kernel"].split("-")[0]
    date = runs[0]["date"]
    lines = [f"{date}; {machine['cpu']}, {machine['cores']} cores, Linux {kernel}; commit {machine['commit']}."]
    lines += [f"Load average {machine['load']:.0f}.", "", "```sh", machine["command"], "```"]
    numbers = [run["data"] for run in runs if run["type"] == "number"]
    for bench in dict.fromkeys(one["bench"] for one in numbers):
        of_bench = {one["name"]: one for one in numbers if one["bench"] == bench}
        columns = list(dict.fromkeys(name.rsplit(": ", 1)[1] for name in of_bench))
        lines += ["", *head(bench, *columns)]
        for who in dict.fromkeys(name.rsplit(": ", 1)[0] for name in of_bench):
            cells = [receive_cell(of_bench[f"{who}: {column}"], column) for column in columns]
            lines.append(row(who, *cells))
    return lines


def receive_cell(number: Json, column: str) -> str:
    """Print the median of a number of `receive` and its range."""
    factor, digits, unit = AGE_MS if column.startswith("age") else RECEIVE_UNITS[number["unit"]]
    return spread([sample * factor for sample in number["samples"]], digits) + unit


TABLES: dict[str, tuple[str, Callable[[Runs], list[str]]]] = {
    "demo": ("demo", demo),
    "state": ("state", state),
    "screen": ("screen", screen),
    "thesis": ("thesis", thesis),
    "frames": ("frames", frames),
    "a1": ("a1", a1),
    "sim": ("sim", sim),
    "receive": ("receive", receive),
    "receive-million": ("receive-million", receive),
}
"""Each table that `docs/benchmarks.md` may have: its result file, and the function that computes its lines."""

CLAIMS: list[tuple[str, str, Callable[[Runs], str]]] = [("README.md", "demo", demo_sentence)]
"""Each sentence with numbers: its document, the result file, and the function that computes it."""
