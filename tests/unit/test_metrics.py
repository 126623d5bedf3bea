"""Every metric is documented, the dashboard and the alert rules use metrics that exist, and promtool accepts them."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from quarterdeck.core.metric_instruments import Instruments
from quarterdeck.core.settings import Settings
from quarterdeck.server.metrics_scrape import DatabaseFigures, ProcessFiles, database_metrics
from quarterdeck.server.metrics_store import Counts, Figures
from tests.pages import ROOT

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "quarterdeck.json"
FIGURES = Figures(0.0, 0, 0, 0, Counts({}, 0, {}))
_ROW = re.compile(r"^\| `(quarterdeck_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_NAME = re.compile(r"\bquarterdeck_\w+")
# Records in a process of its own: the library decides at its import whether there are several processes.
_RECORDING = """
import sys
from decimal import Decimal
from pathlib import Path
from quarterdeck.core import metrics as recorder

recorder.start("worker")
recorder.step_stored("m", {"input": 1}, None)
assert "prometheus_client" not in sys.modules, "imported although there is no port"
recorder.use_folder(Path(sys.argv[1]))
recorder.start("worker")
for number in range(60):
    recorder.model_failed(f"invented {number}")
for number in range(60):
    recorder.step_stored(f"model {number}", {"input": 10, "output": 1}, Decimal("0.25") if number % 2 else None)
recorder.model_failed("model 0")
recorder.request_aborted("GET", None)
recorder.no_connection("main")
"""


def exposed() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of every metric by its name."""
    found = {}
    for instrument in vars(Instruments("api")).values():
        if isinstance(instrument, MetricWrapperBase):
            (family,) = instrument.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, set(instrument._labelnames))
    for family in [*DatabaseFigures(Settings(), "host=/nowhere").collect(), *database_metrics(FIGURES)]:
        found[family.name] = (family.type, {label for sample in family.samples for label in sample.labels})
    return found


def series() -> set[str]:
    """The names that queries can use."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    return {f"{name}{suffix}" for name, (kind, _) in exposed().items() for suffix in suffixes.get(kind, ("",))}


def queries() -> Iterator[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", []))


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "run" / "metrics.md").read_text()
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _ROW.findall(page)}
    assert documented == exposed()


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    known = series()
    used = {name for query in queries() for name in _NAME.findall(query)}
    assert used - known == set()
    assert set(_NAME.findall(ALERTS.read_text())) - known == set()
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert {name for name in exposed() if name not in shown} == {"quarterdeck_build_info"}, "not on the dashboard"


def test_recording(tmp_path: Path) -> None:
    """Without a port nothing is recorded. The number of names is limited, and costs are added."""
    subprocess.run([sys.executable, "-c", _RECORDING, str(tmp_path)], check=True, timeout=60)
    registry = CollectorRegistry()
    registry.register(ProcessFiles(tmp_path))
    # Twice: the process has ended, and its counts are moved at the first time.
    for _ in range(2):
        text = generate_latest(registry).decode()
        found = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        steps = {key[1]: value for key, value in found.items() if key[0] == "quarterdeck_steps_total"}
        assert len(steps) == 51
        assert (steps["model 0"], steps["other"]) == (1, 10)
        failures = {key[1]: value for key, value in found.items() if key[0] == "quarterdeck_model_failures_total"}
        assert (len(failures), failures["other"], failures["model 0"]) == (52, 10, 1)
        costs = [value for key, value in found.items() if key[0] == "quarterdeck_cost_usd_total"]
        assert sum(costs) == 30 * 0.25
        assert found["quarterdeck_http_requests_total", "GET", "none", "unmatched"] == 1
        assert found["quarterdeck_pool_timeouts_total", "main", "worker"] == 1
        assert not any(key[0] == "quarterdeck_processes" for key in found)
    assert {file.name for file in tmp_path.iterdir()} == {"counter_ended.db", "histogram_ended.db"}


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")],
    ids=lambda arguments: " ".join(arguments),
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    assert_accepted([*arguments[:2], str(ALERTS.with_name(arguments[2]))])


def test_promtool_accepts_the_names(tmp_path: Path) -> None:
    """And the text format."""
    subprocess.run([sys.executable, "-c", _RECORDING, str(tmp_path)], check=True, timeout=60)
    registry = CollectorRegistry()
    registry.register(ProcessFiles(tmp_path))
    registry.register(DatabaseFigures(Settings(), "host=/nowhere"))
    assert_accepted(["check", "metrics"], generate_latest(registry).decode())


def test_promtool_can_parse_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, with the variables filled in."""
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "1m").replace("$job", "quarterdeck")}
        for number, query in enumerate(queries())
    ]
    assert len(rules) > 30
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert_accepted(["check", "rules", str(tmp_path / "rules.json")])


def assert_accepted(arguments: list[str], given: str = "") -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt install prometheus")
    done = subprocess.run([promtool, *arguments], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
