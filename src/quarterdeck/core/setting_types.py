"""Types of settings."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=1)]
# At most a week: timeouts of PostgreSQL are 31-bit numbers of milliseconds.
Seconds = Annotated[float, Meta(gt=0, le=7 * 24 * 3600)]
Port = Annotated[int, Meta(ge=0, le=65535)]

# At most a million: an interval is a whole number of microseconds, and a backlog must be exact as a Lua double.
PerMinute = Annotated[int, Meta(ge=0, le=1_000_000)]
Burst = Annotated[int, Meta(ge=1, le=1_000_000)]

# Browsers send origins in lower case.
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?", re.ASCII)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins(frozenset[str]):
    """Origins of web pages, such as `https://app.example.com`, separated by commas."""

    @classmethod
    def parse(cls, text: str) -> "Origins":
        return cls(map(_origin, text.split(",")))


class Networks(tuple[IPv4Network | IPv6Network, ...]):
    """IP networks separated by commas: `10.0.0.0/8, 192.0.2.7`. A single address is a network of size one."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Networks":
        return cls(ip_network(part.strip()) for part in text.split(","))


class ModelNames(tuple[str, ...]):
    """Names of models separated by commas: `openai:gpt-5, anthropic:claude-sonnet-5`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "ModelNames":
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name != "demo" and re.fullmatch(r"[^:]+:.+", name) is None:
                raise ValueError(f"{name!r} is not provider:name or demo")
        return cls(names)


class Folders(tuple[Path, ...]):
    """Absolute paths separated by colons: `/opt/tools:/srv/data`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Folders":
        folders = [Path(part) for part in text.split(":")]
        for folder in folders:
            if not folder.is_absolute():
                raise ValueError(f"{str(folder)!r} is not an absolute path")
        return cls(folders)


def _origin(text: str) -> str:
    match = _ORIGIN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is not scheme://host or scheme://host:port in lower case")
    if match[3] is not None and match[3] == _DEFAULT_PORTS.get(match[1]):
        raise ValueError(f"{text.strip()!r}: browsers leave out {match[3]}")
    return match[0]
