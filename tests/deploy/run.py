"""Starts the files in deploy/ by the commands of docs/run/install.md: the image and the compose file with
podman-compose, and the units in a Debian 12 whose first process is systemd. Run by `make deploy-run`.

Needs Linux, root and Podman; without a registry also debootstrap, for base images made from Debian's packages.
Everything is kept in build/deploy-run, apart from other images, containers and networks of this machine."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.pages import ROOT, all_blocks
from tests.world import free_port

FOLDER = ROOT / "build" / "deploy-run"
BIN = Path(sys.executable).parent
COMPOSE = [str(ROOT / ".venv" / "deploy" / "bin" / "podman-compose"), "--project-name", "quarterdeck-run"]
MACHINE = "quarterdeck-machine"
MACHINE_IMAGE = "localhost/quarterdeck-machine"
PATIENCE_SECONDS = 120

_INSTALL = "RUN apt-get update -qq && apt-get install --yes -qq --no-install-recommends"
# What stands in for images that no registry gives: a suite of Debian, or lines of a Containerfile.
STAND_INS = {
    "docker.io/library/debian:bookworm-slim": "bookworm",
    "docker.io/library/debian:trixie-slim": "trixie",
    "docker.io/library/python:3.13-slim-trixie": f"""
FROM docker.io/library/debian:trixie-slim
{_INSTALL} python3-venv
""",
    "docker.io/library/postgres:18": f"""
FROM docker.io/library/debian:trixie-slim
{_INSTALL} postgresql && rm -rf /var/lib/postgresql/*
ENV PATH=/usr/lib/postgresql/17/bin:$PATH PGDATA=/var/lib/postgresql/18/docker
COPY postgres-entrypoint.sh /
VOLUME /var/lib/postgresql
ENTRYPOINT ["/postgres-entrypoint.sh"]
""",
    MACHINE_IMAGE: f"""
FROM docker.io/library/debian:bookworm-slim
{_INSTALL} ca-certificates dbus procps systemd-sysv
CMD ["/sbin/init"]
""",
}


def main(chosen: list[str]) -> int:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        sys.stderr.write("deploy-run needs root and Podman: apt-get install podman\n")
        return 2
    # crun accepts version 1 or 2 of cgroups, not a mixture of both. Here it sees version 1 only.
    mixture = Path("/sys/fs/cgroup/unified")
    if mixture.is_mount():
        command = ["unshare", "--mount", "sh", "-c", 'umount "$0" && exec "$@"', str(mixture)]
        os.execvp("unshare", [*command, sys.executable, "-m", "tests.deploy.run", *chosen])
    configure_podman()
    began = time.monotonic()
    for name in chosen or ["compose", "systemd"]:
        {"compose": run_compose, "systemd": run_systemd}[name]()
    say(f"everything passed in {time.monotonic() - began:.0f} s")
    return 0


def configure_podman() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    volumes = json.dumps([f"{path}:{path}:ro" for path in pip_folders()] + [f"{FOLDER}/pip.conf:/etc/pip.conf:ro"])
    # Limits of open files stay as they are: raising them needs a capability that root may not have.
    (FOLDER / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = []\nvolumes = {volumes}\n"
        f'[network]\nnetwork_config_dir = "{FOLDER}/networks"\n'
    )
    (FOLDER / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/storage"\nrunroot = "/run/quarterdeck-deploy-run"\n'
    )
    os.environ["CONTAINERS_CONF"] = str(FOLDER / "containers.conf")
    os.environ["CONTAINERS_STORAGE_CONF"] = str(FOLDER / "storage.conf")


def pip_folders() -> list[Path]:
    """Writes the pip configuration of this machine for pip in containers. Returns the local paths that it names."""
    lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    # A name can occur twice; the first one wins.
    values = {
        name.rpartition(".")[2]: ast.literal_eval(value)
        for name, value in (line.split("=", 1) for line in reversed(lines))
    }
    text = "".join(f"{name} = {value.replace(chr(10), ' ')}\n" for name, value in values.items())
    (FOLDER / "pip.conf").write_text(f"[global]\n{text}")
    words = {word for value in values.values() for word in value.split()}
    files = {Path(word) for word in words if word.startswith("/")}
    # The packages of a local index are beside its pages.
    files |= {Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")}
    return sorted(path for path in files if path.exists())


def provide(image: str) -> None:
    """An image of a registry, or what stands in for it."""
    if succeeds("podman", "image", "exists", image):
        return
    if not image.startswith("localhost/") and succeeds("podman", "pull", "--quiet", image):
        return
    recipe = STAND_INS[image]
    say(f"making {image} from packages of Debian")
    if not recipe.startswith("\nFROM "):
        root = FOLDER / recipe
        shutil.rmtree(root, ignore_errors=True)
        run("debootstrap", "--variant=minbase", recipe, str(root))
        run("sh", "-c", f"tar --directory {root} --create . | podman import - {image}")
        shutil.rmtree(root)
        return
    (base,) = re.findall(r"FROM (\S+)", recipe)
    provide(base)
    run("podman", "build", "--tag", image, "--file", "-", str(Path(__file__).parent), given=recipe)


def run_compose() -> None:
    (python,) = re.findall(r"ARG PYTHON_IMAGE=(\S+)", (ROOT / "deploy" / "Containerfile").read_text())
    (postgres,) = re.findall(r"image: (\S*postgres\S*)", (ROOT / "deploy" / "compose.yaml").read_text())
    provide(python)
    provide(postgres)
    # A copy: the steps write .env into its folder.
    source = FOLDER / "source"
    shutil.rmtree(source, ignore_errors=True)
    copy_source(source)
    port = free_port()
    up, keys, scale, backup, restore = (
        step.replace("docker compose", " ".join(COMPOSE)) for step in steps("it needs a container engine")
    )
    os.environ["PORT"] = str(port)

    def compose(*arguments: str) -> str:
        return run(*COMPOSE, *arguments, folder=source / "deploy")

    def is_healthy() -> bool:
        checks = [("podman", "healthcheck", "run", *containers(service)) for service in ("database", "api")]
        return all(succeeds(*each) for each in checks) and is_ready(port)

    try:
        say("compose: build the image and start the services")
        run("sh", "-euc", up, folder=source)
        wait_until("database and API are healthy", is_healthy)
        say("compose: workspace, key, answer")
        key = secret(run("sh", "-euc", keys, folder=source / "deploy"))
        user = ["env", f"QD_URL=http://127.0.0.1:{port}", f"QD_KEY={key}", str(BIN / "qd")]
        session = conversation(user)
        say("compose: more workers")
        run("sh", "-euc", scale, folder=source / "deploy")
        wait_until("there are three workers", lambda: len(containers("worker")) == 3)
        wait_until("database and API are healthy", is_healthy)
        conversation(user, session)
        say("compose: down and up again")
        compose("stop")
        for container in containers("api") + containers("worker"):
            ended = run("podman", "inspect", "--format", "{{.State.ExitCode}}", container).strip()
            # 143: SIGTERM came before the process had started. 137 would be SIGKILL.
            check(ended in ("0", "143"), f"{container} ended with {ended}")
        compose("down")
        left = [service for service in ("database", "migrate", "api", "worker") if containers(service)]
        check(not left, f"containers are left: {left}")
        compose("up", "--detach")
        wait_until("database and API are healthy", is_healthy)
        conversation(user, session)
        say("compose: backup, new volumes, restore")
        run("sh", "-euc", backup, folder=source / "deploy")
        compose("down", "--volumes")
        run("sh", "-euc", restore, folder=source / "deploy")
        wait_until("database and API are healthy", is_healthy)
        conversation(user, session)
    finally:
        if (source / "deploy" / ".env").exists():
            compose("down", "--volumes", "--timeout", "1")


def containers(service: str) -> list[str]:
    project, label = COMPOSE[-1], "label=com.docker.compose"
    filters = [f"--filter={label}.project={project}", f"--filter={label}.service={service}"]
    return run("podman", "ps", "--all", "--quiet", *filters).split()


def run_systemd() -> None:
    provide(MACHINE_IMAGE)
    install, embedded, own, keys = steps("it needs a machine with systemd")
    succeeds("podman", "rm", "--force", "--time", "1", MACHINE)
    try:
        say("systemd: start the machine and install")
        run("podman", "run", "--detach", "--privileged", "--systemd=always", f"--name={MACHINE}", MACHINE_IMAGE)
        wait_until("systemd has started", lambda: succeeds("podman", "exec", MACHINE, "systemctl", "is-active", "dbus"))
        copy_source(FOLDER / "source")
        run("podman", "cp", str(FOLDER / "source"), f"{MACHINE}:/srv/source")
        in_machine(install)

        say("systemd: everything in one unit")
        (key,) = re.findall(r"QD_KEY=(\S+)", in_machine(embedded))
        answers_after_kills(key, "quarterdeck")

        say("systemd: a database of its own, API and two workers")
        in_machine(own)
        wait_until("the API is ready", machine_is_ready)
        key = secret(in_machine(keys))
        answers_after_kills(key, "quarterdeck-api", "quarterdeck-worker@1", "quarterdeck-worker@2")
    finally:
        succeeds("podman", "rm", "--force", "--time", "1", "--volumes", MACHINE)


def answers_after_kills(key: str, *units: str) -> None:
    qd = ["podman", "exec", MACHINE, "env", "QD_URL=http://127.0.0.1:8700", f"QD_KEY={key}", "/opt/quarterdeck/bin/qd"]
    wait_until("the API is ready", machine_is_ready)
    session = conversation(qd)
    for unit in units:
        before = unit_state(unit, "MainPID")
        in_machine(f"systemctl kill --signal=KILL --kill-whom=main {unit}")
        wait_until(f"{unit} is started again", lambda: is_started_again(unit, before))  # noqa: B023 - waits here
    wait_until("the API is ready", machine_is_ready)
    conversation(qd, session)
    if "quarterdeck-api" in units:
        in_machine("systemctl reload quarterdeck-api")
        conversation(qd, session)
    in_machine(f"systemctl disable --now {' '.join(units)}")
    for unit in units:
        found = [unit_state(unit, name) for name in ("ActiveState", "Result", "ExecMainStatus")]
        check(found == ["inactive", "success", "0"], f"{unit} after its stop: {found}")


def in_machine(text: str) -> str:
    given = f"export DEBIAN_FRONTEND=noninteractive; cd /srv/source\n{text}"
    return run("podman", "exec", MACHINE, "bash", "-euc", given)


def unit_state(unit: str, name: str) -> str:
    return in_machine(f"systemctl show --property {name} --value {unit}").strip()


def is_started_again(unit: str, before: str) -> bool:
    return unit_state(unit, "MainPID") not in ("0", before) and unit_state(unit, "SubState") == "running"


def is_ready(port: int, *prefix: str) -> bool:
    asked = f"from urllib.request import urlopen; urlopen('http://127.0.0.1:{port}/readyz', timeout=5)"
    return succeeds(*prefix, "python3", "-c", asked)


def machine_is_ready() -> bool:
    return is_ready(8700, "podman", "exec", MACHINE)


def steps(reason: str) -> list[str]:
    return [block.text for block in all_blocks("docs/run/install.md") if block.not_run == reason]


def copy_source(folder: Path) -> None:
    for name in ("requirements", "licenses", "src", "deploy"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".env")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy2(ROOT / name, folder)


def conversation(qd: list[str], session: str | None = None) -> str:
    """An input of a session, a new one unless given, is answered by the demo model."""
    before = [] if session is None else run(*qd, "sessions", "export", session).splitlines()
    check(session is None or len(before) > 3, f"the session has lost its log: {before}")
    session = session or run(*qd, "sessions", "create").split()[0]
    answer = run(*qd, "send", session, "Plan our release.", "--wait")
    check(len(answer) > 10, f"no answer: {answer!r}")
    return session


def secret(printed: str) -> str:
    (found,) = re.findall(r"^secret (\S+)", printed, re.MULTILINE)
    return str(found)


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        check(time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.5)
    say(f"  {what}")


def run(*command: str, folder: Path | None = None, given: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"{' '.join(command)}\nexited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_SECONDS).returncode == 0


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"FAILED: {otherwise}")


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
