"""The files in deploy/ agree with the program: its settings, commands, version and metrics. `make deploy-check` reads
them with the tools that they are for."""

import re
import tomllib
from pathlib import Path

import yaml

from quarterdeck.cli.main import COMMANDS
from quarterdeck.core.settings import ServerSettings, variables
from tests.pages import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "quarterdeck"


def files() -> list[Path]:
    return [file for file in sorted(DEPLOY.rglob("*")) if file.is_file()]


def test_every_variable_is_a_setting() -> None:
    used = {name for file in files() for name in re.findall(r"QUARTERDECK_[A-Z_]*[A-Z]", file.read_text("utf-8"))}
    assert len(used) > 10
    assert used - set(variables()) == set()


def test_every_command_exists() -> None:
    units = [file.read_text() for file in (DEPLOY / "systemd").iterdir()]
    started = {command for text in units for command in re.findall(r"^ExecStart=\S+/qd (\S+)$", text, re.MULTILINE)}
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    started |= {service["command"][0] for name, service in compose.items() if name != "database"}
    templates = [file.read_text() for file in (CHART / "templates").glob("*.yaml")]
    started |= {command for text in templates for command in re.findall(r"args: \[(\w+)\]", text)}
    assert started == {"serve", "api", "worker", "migrate"}
    assert started <= {name for name, *_ in COMMANDS}


def test_versions_ports_and_users_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    image = (DEPLOY / "Containerfile").read_text()
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    (user,) = re.findall(r"runAsUser: (\d+)", helpers)
    assert f"--uid {user} " in image
    assert f"USER {user}:{user}" in image
    port = ServerSettings().port
    assert f"EXPOSE {port}" in image
    assert f"containerPort: {port}" in (CHART / "templates" / "api.yaml").read_text()


def test_grace_periods_are_longer_than_the_shutdown() -> None:
    shutdown = ServerSettings().shutdown_seconds
    for unit in (DEPLOY / "systemd").iterdir():
        for seconds in re.findall(r"TimeoutStopSec=(\d+)", unit.read_text()):
            assert int(seconds) > shutdown
    for service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values():
        assert int(service.get("stop_grace_period", "99s").removesuffix("s")) > shutdown


def test_autoscaling_asks_for_metrics_that_exist() -> None:
    asked = set(re.findall(r"quarterdeck_(\w+)\{", (CHART / "templates" / "worker.yaml").read_text()))
    assert asked == {"queue_oldest_seconds", "runs"}
    source = (ROOT / "src" / "quarterdeck" / "server" / "metrics_scrape.py").read_text()
    assert all(f'_gauge("{name}"' in source for name in asked)
