"""The files that `qd agents init` writes."""

INSTRUCTIONS = "Say who the agent is, what it is asked to do, and how it answers.\n"
AGENT_YAML = """\
# What sessions of this agent use, besides instructions.md. `qd agents push` makes a version of it.
# Remove the # of what you need. Everything has a default.

# `provider:name`, or demo. `qd models` lists models. Default: that of the server.
# model: demo

# settings:
#   temperature: 0.3
#   max_output_tokens: 4000
#   reasoning_effort: low        # low, medium or high

# Names or IDs, with @VERSION to stay at a version. `qd skills list` shows them.
# skills:
#   - house-style
#   - release-notes@2

# Names or IDs. `qd mcp list` shows them.
# mcp_servers:
#   - tracker

# allow, ask or deny, by name of a tool or by prefix.
# tool_policy:
#   bash: ask
#   tracker__*: allow

# For one run and for all runs of a session together.
# limits:
#   run: {max_cost_usd: 2.50}
#   session: {max_tokens: 2000000}

# sandbox: files and commands in a sandbox. none: neither.
# workspace: sandbox

# Tools that your program carries out: a list with name, description and parameters, or a JSON file with that list.
# client_tools: tools.json

# The answer is JSON that matches this JSON Schema: an object, or a JSON file.
# output_schema: answer.json
"""
