"""Checks the files in deploy/ with the tools that read them: Helm's own library, the schemas of Kubernetes, hadolint,
podman-compose and systemd-analyze. Run by `make deploy-check`, in an environment that has these and nothing of ours."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "quarterdeck"
KUBERNETES = ("1.29", "1.34")
# Not part of Kubernetes, so there is no schema here: what they must have is checked below.
OTHER_KINDS = {"ScaledObject", "PodMonitor"}
LEAST = {"blobStoreUrl": "s3://bucket/prefix"}
EVERYTHING: dict[str, Any] = {
    **LEAST,
    "settings": {"QUARTERDECK_MODEL_DEFAULT": "demo", "QUARTERDECK_RUN_MAX_STEPS": 5},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"annotations": {"role": "bucket"}},
    "api": {"autoscaling": {"enabled": True}, "nodeSelector": {"pool": "api"}, "tolerations": [{"operator": "Exists"}]},
    "worker": {"autoscaling": {"enabled": True}, "securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "certificate", "annotations": {"a": "b"}},
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
}


def main() -> int:
    faults = [*check_chart(), *check_containerfile(), *check_compose(), *check_units()]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def check_chart() -> Iterator[str]:
    for values in (LEAST, EVERYTHING):
        report = lint(CHART, values, strict=True)
        # 1: advice, such as that an icon is recommended.
        yield from (f"helm lint: {message}" for message in report["messages"] if message["severity"] > 1)
        objects = list(rendered(values))
        for each in objects:
            yield from validated(each)
        yield from told("objects of the chart", [each["kind"] for each in objects])
    kinds = {each["kind"]: each for each in rendered(EVERYTHING)}
    if set(OTHER_KINDS) - kinds.keys():
        yield f"the chart does not render {set(OTHER_KINDS) - kinds.keys()}"
    deployments = [each for each in rendered(LEAST) if each["kind"] == "Deployment"]
    for each in deployments:
        pod = each["spec"]["template"]["spec"]
        if pod["securityContext"]["runAsNonRoot"] is not True:
            yield f"{each['metadata']['name']} may run as root"
    yield from refused({}, "blobStoreUrl")
    yield from refused(LEAST | {"replicas": 3}, "replicas")
    # Every object of the default values: its unknown entries are refused, too.
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in objects_in(defaults):
        values: Any = {"mistyped": 1}
        for name in reversed(path):
            values = {name: values}
        yield from refused(LEAST | values, "mistyped")


# Kubernetes knows what these may hold, and `settings` has names of its own.
OPEN = {"settings", "resources", "requests", "limits", "affinity", "securityContext"}


def objects_in(values: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict) and name not in OPEN:
            yield (*path, name)
            yield from objects_in(value, *path, name)


def refused(values: dict[str, Any], because: str) -> Iterator[str]:
    try:
        Chart.load(CHART).render(values, name="quarterdeck", namespace="team")
        yield f"the chart accepts {values}"
    except Exception as fault:
        if because not in str(fault):
            yield f"the chart refuses {values}, but for another reason: {fault}"


def rendered(values: dict[str, Any]) -> Iterator[Any]:
    texts = Chart.load(CHART).render(values, name="quarterdeck", namespace="team")
    for name, text in sorted(texts.items()):
        if name.endswith(".yaml"):
            yield from (each for each in yaml.safe_load_all(text) if each is not None)


def validated(each: Any) -> Iterator[str]:
    if each["kind"] in OTHER_KINDS:
        return
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as fault:
            yield f"{each['kind']} {each['metadata']['name']}: {list(fault.path)}: {fault.message}"


def check_containerfile() -> Iterator[str]:
    yield from ran("hadolint", str(Path(sys.executable).parent / "hadolint"), str(DEPLOY / "Containerfile"))


def check_compose() -> Iterator[str]:
    given = {"OWNER_PASSWORD": "a", "APP_PASSWORD": "b", "ENCRYPTION_KEYS": "c"}
    command = [str(Path(sys.executable).parent / "podman-compose"), "-f", str(DEPLOY / "compose.yaml"), "config"]
    for environment, succeeds in ((given, True), ({}, False)):
        done = subprocess.run(
            command, env=os.environ | environment, cwd=DEPLOY, capture_output=True, text=True, check=False
        )
        if (done.returncode == 0) is not succeeds:
            yield f"compose {'fails' if succeeds else 'accepts missing passwords'}: {done.stderr[-500:]}"
    yield from told("services of compose", list(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]))


def check_units() -> Iterator[str]:
    if shutil.which("systemd-analyze") is None:
        yield "systemd-analyze is not installed: apt-get install systemd"
        return
    with tempfile.TemporaryDirectory() as folder:
        # The program that they start is not installed here.
        for unit in (DEPLOY / "systemd").glob("*.service"):
            text = unit.read_text().replace("/opt/quarterdeck/bin/qd", shutil.which("true") or "/bin/true")
            (Path(folder) / unit.name).write_text(text)
        units = [str(path) for path in sorted(Path(folder).iterdir())]
        yield from ran("systemd-analyze", "systemd-analyze", "verify", *units)
        yield from told("units", [Path(unit).name for unit in units])


def ran(name: str, *command: str) -> Iterator[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        yield f"{name}: {done.stdout}{done.stderr}"


def told(name: str, found: list[str]) -> Iterator[str]:
    sys.stdout.write(f"{name}: {json.dumps(found)}\n")
    if not found:
        yield f"no {name}"


if __name__ == "__main__":
    sys.exit(main())
