"""From a path to its endpoint, a segment at a time: what a look-up costs does not grow with the number of paths."""

from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from quarterdeck import errors
from quarterdeck.http.endpoint import Endpoint


class Router:
    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Paths such as `/v1/runs/{run_id}`. `{name:path}`, at the end, stands for all that follows."""
        self._root = _Place()
        for path, endpoint in endpoints.items():
            self._add(path, endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An encoded slash separates segments here and does not for a proxy in front of us.
        if b"%2f" in scope["raw_path"].lower():
            raise errors.not_found("path")
        endpoint, scope["path_params"] = self._find(scope["path"])
        await endpoint(scope, receive, send)

    def _add(self, path: str, endpoint: Endpoint) -> None:
        place = self._root
        for segment in path.split("/")[1:]:
            if not segment.startswith("{"):
                place = place.named.setdefault(segment, _Place())
                continue
            name, _, kind = segment[1:-1].partition(":")
            if kind == "path":
                place.rest = (name, endpoint)
                return
            if place.any is None:
                place.any = (name, _Place())
            assert place.any[0] == name, f"{path} gives a segment a second name"
            place = place.any[1]
        place.endpoint = endpoint

    def _find(self, path: str) -> tuple[Endpoint, dict[str, str]]:
        found: dict[str, str] = {}
        place = self._root
        segments = path.split("/")
        for number, segment in enumerate(segments[1:], start=1):
            if segment in place.named:
                place = place.named[segment]
            elif place.any is not None and segment:
                name, place = place.any
                found[name] = segment
            elif place.rest is not None:
                name, endpoint = place.rest
                found[name] = "/".join(segments[number:])
                return endpoint, found
            else:
                raise errors.not_found("path")
        if place.endpoint is None:
            raise errors.not_found("path")
        return place.endpoint, found


class _Place:
    """Where a path has got to."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.named: dict[str, _Place] = {}
        # A segment of any text, and what it is called.
        self.any: tuple[str, _Place] | None = None
        # All that follows, likewise.
        self.rest: tuple[str, Endpoint] | None = None
