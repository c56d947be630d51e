"""The results of two machines as text."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spread(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Return the median, and the smallest and largest in brackets where there are several."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "never" if not known else f"never in {len(values) - len(known)} of {len(values)} runs"
    middle = text(statistics.median(known))
    return middle if len(known) == 1 else f"{middle} ({text(min(known))} to {text(max(known))})"


def seconds(value: float) -> str:
    """Return an age."""
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def megabits(value: float) -> str:
    """Return a rate."""
    return f"{value / 1e6:.1f}"


def yes_no(value: bool | None) -> str:
    """Return how a setting is."""
    return "unknown" if value is None else "on" if value else "off"


def host_rows(hosts: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return what is known of the machines, one property a row."""

    def row(name: str, of: Callable[[dict[str, Any]], object]) -> list[str]:
        return [name, *(str(of(host)) for host in hosts)]

    def card(host: dict[str, Any]) -> str:
        nic = host["interface"]
        speed = f"{nic['speed_mbit']} Mbit/s" if nic["speed_mbit"] else "speed unknown"
        return f"{nic['name']}, {speed}, MTU {nic['mtu']}"

    def driver(host: dict[str, Any]) -> str:
        nic = host["interface"]
        return ", ".join(
            f"{name} {nic[key]}" if name else nic[key]
            for name, key in (("", "driver"), ("", "driver_version"), ("firmware", "firmware"), ("at", "bus"))
            if nic[key]
        )

    def offloads(host: dict[str, Any]) -> str:
        return ", ".join(f"{name} {yes_no(value)}" for name, value in host["interface"]["offloads"].items())

    def load(host: dict[str, Any]) -> str:
        return f"{host['load'][0]:.2f} before, {host['load_after'][0]:.2f} after"

    return [
        row("kernel", lambda host: host["kernel"]),
        row("processor", lambda host: f"{host['processors']} x {host['processor']}, {host['machine']}"),
        row("load", load),
        row("address", lambda host: host["address"]),
        row("interface", card),
        row("driver", driver),
        row("offloads", offloads),
        row("TCP's congestion control", lambda host: host["congestion"]),
        row("command", lambda host: host["command"]),
    ]


def groups(runs: Sequence[dict[str, Any]], kind: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the runs of a kind that did not fail, by direction and scheme, in their order."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        if run["kind"] == kind and "failure" not in run:
            found.setdefault((run["direction"], run["scheme"]), []).append(run)
    return found


def age_rows(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return how old values were at the reader."""
    rows = []
    for (direction, scheme), group in groups(runs, "values").items():
        ages = [spread([run[f"age_{name}_s"] for run in group], seconds) for name in ("median", "high", "worst")]
        source = group[0]["source"]
        rate = 8 * source["size"] * 1e9 / source["interval_ns"]
        received = spread([run["received_values"] / run["seconds"] for run in group], lambda value: f"{value:.0f}")
        rows.append([direction, scheme, megabits(rate), str(source["keys"]), *ages, received])
    return rows


def bulk_rows(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return throughput and processor time."""
    rows = []
    for (direction, scheme), group in groups(runs, "bulk").items():
        cells = [spread([run["throughput_bps"] for run in group], megabits)]
        for end in ("sender", "receiver"):
            costs = [run[f"{end}_cpu_s"] / (run["received_bytes"] / 1e9) for run in group]
            cells.append(spread(costs, lambda value: f"{value:.2f}"))
        rows.append([direction, scheme, *cells])
    return rows


def notes(results: dict[str, Any]) -> list[str]:
    """Return what limits the results."""
    lines = [
        f"Ages rest on the difference of the two clocks, which is known to {seconds(results['clock']['error_s'])}.",
    ]
    bulk = groups(results["runs"], "bulk")
    for (direction, scheme), group in groups(results["runs"], "values").items():
        source = group[0]["source"]
        if scheme != "plain TCP":
            continue
        carried = statistics.median(run["throughput_bps"] for run in bulk[direction, scheme])
        if 8 * source["size"] * 1e9 / source["interval_ns"] < carried:
            lines.append(
                f"{direction}: the path carries more than was offered, so there was nothing to choose. Raise --offered."
            )
    failed = {
        f"{run['direction']}, {run['kind']}, {run['scheme']}: {run['failure']}"
        for run in results["runs"]
        if "failure" in run
    }
    lines += [f"Failed: {failure}." for failure in sorted(failed)]
    if "uncommitted" in results["commit"]:
        lines.append("The repository had uncommitted changes: do not publish these results.")
    return lines


def markdown(results: dict[str, Any]) -> str:
    """Return the whole report."""
    hosts, runs = results["hosts"], results["runs"]
    a, b = (host["name"] for host in hosts)
    parts = [
        f"# Between two machines\n\n{results['date']}; commit {results['commit']}; runs of {results['seconds']:g} s. "
        "Medians; smallest and largest in brackets.\n",
        table(["", f"A: {a}", f"B: {b}"], host_rows(hosts)),
        "## Age of the newest value of each key\n\nAt the reader, looked at every 10 ms. Rates are in Mbit/s.\n",
        table(
            ["direction", "scheme", "offered", "keys", "median", "95th percentile", "worst", "values a second"],
            age_rows(runs),
        ),
        "## Throughput and processor time\n\nIn Mbit/s and seconds for each GB, user and kernel, of the command at each end.\n",
        table(["direction", "scheme", "throughput", "sender", "receiver"], bulk_rows(runs)),
        "".join(f"- {line}\n" for line in notes(results)),
    ]
    return "\n".join(parts)
