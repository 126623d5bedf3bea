"""A large push, of text: how long its caller waits, with everything that is checked and stored."""

from time import perf_counter

from bench import archives
from bench.case import Case, Round, Taken, at_most
from bench.programs import output_of
from bench.pushing import Pushing, pushing


async def us(stage: Pushing, one: Round) -> Taken:
    archive = archives.text(one.rows(500))
    began = perf_counter()
    await stage.push(archive)
    return Taken(perf_counter() - began)


async def ceiling(stage: Pushing, one: Round) -> Taken:
    archive = archives.written(archives.text(one.rows(500)), stage.folder / "text.tar.gz")
    began = perf_counter()
    await output_of(["sh", "-c", f"gzip -dc {archive.name} | sha256sum"], folder=stage.folder)
    return Taken(perf_counter() - began)


CASE = Case(
    title="push, 50 MiB of text",
    unit="s",
    against="gzip -dc | sha256sum",
    reach=at_most(0.6),
    stage=pushing,
    us=us,
    ceiling=ceiling,
)
