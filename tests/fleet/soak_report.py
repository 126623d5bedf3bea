"""Tables, figures and the plot of a soak."""

import msgspec
from bench import timeline
from bench.figures import Figure
from bench.report import RESULTS, write_json
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.fleet.resources import POSTGRES, Sample, Trend, trend

# Flat: growth along the fitted line of at most the larger of the two. Open files include the clients connected at the
# moment.
FLAT_MIB, FLAT_MEMORY_SHARE = 3.0, 0.05
FLAT_FILES, FLAT_FILES_SHARE = 3.0, 0.1


class SoakResult(Struct, frozen=True):
    peak_per_second: float
    held_per_second: float
    warm_up_seconds: float
    samples: list[Sample]
    # Actions not started because too many were under way.
    skipped: int
    violations: list[str]


def trends_of(result: SoakResult) -> dict[str, dict[str, Trend]]:
    """By process, then by quantity. Without processes that did not live all the time, which count as replaced."""
    settled = [sample for sample in result.samples if sample.seconds >= result.warm_up_seconds]
    seconds = [sample.seconds for sample in settled]
    names = set.intersection(*(set(sample.held) for sample in settled))
    return {
        name: {
            quantity: trend(seconds, [getattr(sample.held[name], quantity) for sample in settled])
            for quantity in msgspec.structs.asdict(settled[0].held[name])
        }
        for name in settled[0].held
        if name in names
    }


def figures_of(result: SoakResult, trends: dict[str, dict[str, Trend]]) -> list[Figure]:
    figures = [
        Figure("peak", result.peak_per_second, "actions/s"),
        Figure("held", result.held_per_second, "actions/s"),
        Figure("violations of the promises", len(result.violations), "", 0),
        Figure("actions skipped", result.skipped, "", 0),
        Figure("processes replaced", _replaced(result), "", 0),
    ]
    for name, by_quantity in trends.items():
        memory, files = by_quantity["own_mib"], by_quantity["files"]
        most_mib = max(FLAT_MIB, FLAT_MEMORY_SHARE * memory.first_quarter)
        most_files = max(FLAT_FILES, FLAT_FILES_SHARE * files.first_quarter)
        figures.append(Figure(f"{name}: growth of memory", memory.growth, "MiB", most_mib))
        figures.append(Figure(f"{name}: growth of open files", files.growth, "", most_files))
    return figures


def _replaced(result: SoakResult) -> int:
    """Processes of the first sample whose process id changed."""
    first, last = result.samples[0].pids, result.samples[-1].pids
    return sum(last.get(name) != pid for name, pid in first.items())


def table_of(trends: dict[str, dict[str, Trend]], figures: list[Figure]) -> Table:
    table = Table(title="Quarterdeck soak: after the warm-up, first quarter → last quarter")
    for column in ("process", "own MiB", "MiB/h", "resident MiB", "open files", "files/h", "threads", "flat"):
        table.add_column(column, justify="left" if column == "process" else "right")
    met = {figure.name: figure.met for figure in figures}
    for name, of in trends.items():
        flat = met[f"{name}: growth of memory"] and met[f"{name}: growth of open files"]
        table.add_row(
            name,
            _span(of["own_mib"], 1),
            f"{of['own_mib'].per_hour:+.1f}",
            _span(of["resident_mib"], 1),
            _span(of["files"], 0),
            f"{of['files'].per_hour:+.1f}",
            _span(of["threads"], 0),
            "yes" if flat else "no",
            style="" if flat else "red",
        )
    return table


def _span(of: Trend, decimals: int) -> str:
    return f"{of.first_quarter:.{decimals}f} → {of.last_quarter:.{decimals}f}"


def picture_of(result: SoakResult) -> str:
    names = [name for name in result.samples[-1].held if all(name in sample.held for sample in result.samples)]

    def lines(quantity: str) -> dict[str, list[float]]:
        """Without PostgreSQL: the sum of its many processes would need another scale."""
        own = [name for name in names if name != POSTGRES]
        return {name: [getattr(sample.held[name], quantity) for sample in result.samples] for name in own}

    panels = {
        "own memory, MiB": lines("own_mib"),
        "open files": lines("files"),
        "PostgreSQL, MiB": {
            "own memory of its processes": [sample.held[POSTGRES].own_mib for sample in result.samples],
            "database (rows are kept)": [sample.database_mib for sample in result.samples],
        },
    }
    minutes = [sample.seconds / 60 for sample in result.samples]
    title = f"Quarterdeck soak, {result.held_per_second:.0f} actions a second, grey: warm-up"
    return timeline.draw(minutes, panels, result.warm_up_seconds / 60, title)


def report(result: SoakResult, took_seconds: float, load_before: float, console: Console) -> bool:
    """Whether every target is met."""
    trends = trends_of(result)
    figures = figures_of(result, trends)
    console.print(table_of(trends, figures))
    first, last = result.samples[0], result.samples[-1]
    console.print(
        f"{last.seconds / 60:.1f} minutes, the first {result.warm_up_seconds / 60:.1f} are not counted. Database: "
        f"{first.database_mib:.0f} → {last.database_mib:.0f} MiB; rows are kept. "
        f"Connections to it: {first.connections} → {last.connections}."
    )
    for figure in figures[2:5]:
        console.print(f"{figure.name}: {figure.value:g}")
    for violation in result.violations[:20]:
        console.print(f"[red]{escape(violation)}")
    path = write_json("soak", figures, took_seconds, load_before, trends=trends, result=msgspec.to_builtins(result))
    (RESULTS / "soak.svg").write_text(picture_of(result))
    console.print(f"Written to {path} and soak.svg")
    return all(figure.met is not False for figure in figures)
