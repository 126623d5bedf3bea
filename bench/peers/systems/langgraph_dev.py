"""`langgraph dev`: LangGraph's server as it runs without a licence and without Docker."""

from collections.abc import Sequence

from bench.peers.processes import Command
from bench.peers.system import APPS, Environment
from bench.peers.systems.agent_protocol import AgentProtocolServer


class LanggraphDev(AgentProtocolServer):
    name = "langgraph dev"
    request = "POST /threads/{id}/runs, multitask_strategy=enqueue"
    setting = "as it comes: memory, written to files every ten seconds"
    differs = "Nothing is durable when it answers: that needs a licence and Docker. Its makers mean it for trials."
    environment = Environment("langgraph", "langgraph-api")
    health = "/ok"

    async def prepare(self) -> None:
        self.write_graphs(self.installation.folder / "langgraph.json")

    def commands(self) -> Sequence[Command]:
        environment = {"PYTHONPATH": str(APPS), "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
        if self.installation.model:
            environment["BENCH_MODEL"] = self.installation.model
        program = self.installation.installed / "bin" / "langgraph"
        arguments = (program, "dev", "--no-browser", "--no-reload", "--port", str(self.port))
        return [Command("langgraph", arguments, environment)]
