"""Most pushes: 3 KiB. Beside the two commits there is an archive to check, and to store for good."""

from bench import archives, wrk
from bench.case import BenchError, Case, Round, Taken, at_least
from bench.pushing import Pushing, pushing

_CONNECTIONS = 16
# Each round's archives are new ones.
_A_ROUND = 1_000_000
_VERSIONS = "SELECT sum(latest_version) FROM skills"


async def us(stage: Pushing, one: Round) -> Taken:
    return await _load(stage, one, stage.server.port, "/v1/skills/{}/versions")


async def ceiling(stage: Pushing, one: Round) -> Taken:
    return await _load(stage, one, stage.bare_port, "/push/{}")


async def _load(stage: Pushing, one: Round, port: int, path: str) -> Taken:
    archive = archives.written(archives.small(), stage.folder / "small.tar.gz")
    paths = ",".join(path.format(skill) for skill in stage.skills)
    ((before,),) = await stage.server.statement(_VERSIONS)
    report = await wrk.load(
        port,
        "push",
        connections=_CONNECTIONS,
        seconds=one.seconds,
        key=stage.server.key,
        archive=archive,
        paths=paths,
        first=(one.number + 1) * _A_ROUND,
    )
    ((after,),) = await stage.server.statement(_VERSIONS)
    if not report.requests <= after - before:
        raise BenchError(f"{report.requests} pushes were reported, and there are {after - before} versions more")
    return Taken(report.per_second)


CASE = Case(
    title="push, median bundle (3 KB), 16 connections",
    unit="/s",
    against="empty handler, same body, same two commits",
    reach=at_least(0.35),
    stage=pushing,
    us=us,
    ceiling=ceiling,
    smoke=True,
)
