"""Types of settings."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

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
_HOST_AND_PORT = re.compile(r"[a-z0-9._-]+:[1-9][0-9]{0,4}", re.ASCII)
_ENDPOINT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins(frozenset[str]):
    """Origins of web pages, such as `https://app.example.com`, separated by commas."""

    @classmethod
    def parse(cls, text: str) -> "Origins":
        return cls(map(_origin, text.split(",")))


class HostNames(frozenset[str]):
    """Names of hosts without ports, separated by commas: `quarterdeck.example.com, qd.internal`."""

    @classmethod
    def parse(cls, text: str) -> "HostNames":
        names = [name.strip().lower() for name in text.split(",")]
        for name in names:
            if re.fullmatch(r"[a-z0-9._-]+", name, re.ASCII) is None:
                raise ValueError(f"{name!r} is not the name of a host")
        return cls(names)


class Networks(tuple[IPv4Network | IPv6Network, ...]):
    """IP networks separated by commas: `10.0.0.0/8, 192.0.2.7`. A single address is a network of size one."""

    @classmethod
    def parse(cls, text: str) -> "Networks":
        return cls(ip_network(part.strip()) for part in text.split(","))


class AddressExceptions(frozenset[str]):
    """Networks, or names with a port, separated by commas: `10.0.0.0/8, tools.internal:8080`."""

    @classmethod
    def parse(cls, text: str) -> "AddressExceptions":
        return cls(map(_address_exception, text.split(",")))

    def allow(self, host: str, port: int, address: IPv4Address | IPv6Address) -> bool:
        """Whether a connection to this address is allowed for the host of a URL."""
        if f"{host}:{port}" in self:
            return True
        networks = (ip_network(entry) for entry in self if "/" in entry)
        return any(address in network for network in networks if network.version == address.version)


class ModelNames(tuple[str, ...]):
    """Names of models separated by commas: `openai:gpt-5, anthropic:claude-sonnet-5`."""

    @classmethod
    def parse(cls, text: str) -> "ModelNames":
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name != "demo" and re.fullmatch(r"[^:]+:.+", name) is None:
                raise ValueError(f"{name!r} is not provider:name or demo")
        return cls(names)


class Endpoints(dict[str, str]):
    """Base URLs by name, separated by commas: `gpu=http://10.0.0.5:8000/v1, proxy=https://models.example.com/v1`."""

    @classmethod
    def parse(cls, text: str) -> "Endpoints":
        endpoints = cls()
        for part in text.split(","):
            name, _, url = (half.strip() for half in part.partition("="))
            if _ENDPOINT_NAME.fullmatch(name) is None or name == "demo":
                raise ValueError(f"{name!r} is not a name of letters in lower case, digits and hyphens")
            if name in endpoints:
                raise ValueError(f"{name!r} is there twice")
            if re.fullmatch(r"https?://\S+", url) is None:
                raise ValueError(f"{name}: {url!r} is not a URL with http or https")
            endpoints[name] = url
        return endpoints


class _ModelLimit(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    concurrent: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    tokens_a_minute: Annotated[int, Meta(ge=1, le=10**12)] | None = None


class ModelLimits(dict[str, dict[str, int]]):
    """Limits by provider or model, as JSON: `{"openai": {"concurrent": 20, "tokens_a_minute": 400000}}`."""

    @classmethod
    def parse(cls, text: str) -> "ModelLimits":
        try:
            limits = msgspec.json.decode(text, type=dict[str, _ModelLimit])
        except msgspec.MsgspecError as fault:
            raise ValueError(str(fault)) from None
        return cls(msgspec.to_builtins(limits))

    def apply_to(self, model: str) -> bool:
        return model in self or model.partition(":")[0] in self


class FolderList(tuple[Path, ...]):
    """Absolute paths separated by colons: `/opt/tools:/srv/data`."""

    @classmethod
    def parse(cls, text: str) -> "FolderList":
        folders = [Path(part) for part in text.split(":")]
        for folder in folders:
            if not folder.is_absolute():
                raise ValueError(f"{str(folder)!r} is not an absolute path")
        return cls(folders)


def _address_exception(text: str) -> str:
    """A network as `ip_network` prints it, or host:port in lower case."""
    entry = text.strip().lower()
    try:
        return str(ip_network(entry))
    except ValueError:
        if _HOST_AND_PORT.fullmatch(entry) is None:
            raise ValueError(f"{entry!r} is neither a network such as 10.0.0.0/8 nor host:port") from None
        return entry


def _origin(text: str) -> str:
    match = _ORIGIN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is not scheme://host or scheme://host:port in lower case")
    if match[3] is not None and match[3] == _DEFAULT_PORTS.get(match[1]):
        raise ValueError(f"{text.strip()!r}: browsers leave out {match[3]}")
    return match[0]
