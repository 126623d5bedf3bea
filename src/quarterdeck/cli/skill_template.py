"""The SKILL.md that `qd skills init` writes."""

import json

DESCRIPTION = "Describe in one or two sentences what this skill does and when an agent should use it."
_TEMPLATE = """\
---
name: {name}
description: {description}
---

# {name}

Write down what the agent needs to know and what to do, step by step. Other files in this folder are part of the skill:
mention them here, and the agent reads them when it needs them.
"""


def template(name: str, description: str) -> str:
    # A JSON string is also valid YAML, whatever characters it contains.
    return _TEMPLATE.format(name=name, description=json.dumps(description, ensure_ascii=False))
